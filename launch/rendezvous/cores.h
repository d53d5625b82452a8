// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "launch/process/environment.h"

namespace zero {

/// Cores this process may run on: its affinity mask.
int usable_cores();

/// The cores of this process as the system reports them, before MPI starts.
struct CoreFacts {
  int allowed = 1;                ///< logical cores this process may run on
  int launcher = 1;               ///< those of the parent process: more if mpirun bound this one
  int physical = 1;               ///< physical cores among `allowed`
  std::optional<double> quota{};  ///< of the control group on this host, in cores
  int local_ranks = 1;            ///< ranks of the job on this host
};
/// Reads affinity, topology (sysfs) and control groups.
CoreFacts core_facts(int local_ranks);

/// The number of threads of a rank, and the reason.
struct ThreadChoice {
  int threads = 1;
  std::string why;
};
/// One thread per physical core of a rank's share, at least one: the ranks of this host divide the
/// cores that the job may use. A rank that the launcher has bound shares its cores with as many
/// ranks as an even spread over the launcher's cores puts there.
ThreadChoice choose_threads(const CoreFacts& facts);

/// The host and cores of one rank.
struct RankPlacement {
  std::int64_t host = 0;  ///< equal for ranks on the same host
  std::int64_t threads = 1;
  double quota = 0;          ///< of the host, in cores; 0: none
  std::vector<int> cores{};  ///< in ascending order
};
/// Every rank's placement, in rank order, the same on all. Collective.
std::vector<RankPlacement> gather_placements(Communicator& communicator, Device& device,
                                             int threads);

/// Warnings about the placement of the ranks.
struct PlacementReport {
  std::vector<std::string> warnings{};  ///< each with its remedy
  /// Says that ranks take turns on cores and how this affects times; empty if they do not.
  std::string shared{};
};
/// The remedies are those of the launcher that the variables tell of.
PlacementReport judge_placements(const std::vector<RankPlacement>& ranks,
                                 const Environment& environment);

}  // namespace zero
