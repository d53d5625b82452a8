// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace zero {

/// Cores this process may run on: its affinity mask.
int usable_cores();

/// The cores of this process as the system reports them, before MPI starts.
struct CoreFacts {
  int allowed = 1;                ///< logical cores this process may run on
  int launcher = 1;               ///< those of the process that started it: more if mpirun bound it
  int physical = 1;               ///< physical cores among `allowed`
  std::optional<double> quota{};  ///< cores' worth of time the control group grants on this host
  int local_ranks = 1;            ///< ranks of the job on this host
};
/// Reads affinity, topology (sysfs) and control groups.
CoreFacts core_facts(int local_ranks);

/// Threads of a rank, and why so many.
struct ThreadChoice {
  int threads = 1;
  std::string why;
};
/// One thread for each physical core that is a rank's own if the ranks of this host share what
/// the job may use; one at least. A rank that the launcher has bound shares its cores with as many
/// ranks as an even spread over the launcher's cores puts there.
ThreadChoice choose_threads(const CoreFacts& facts);
/// Whether every thread of the ranks of this host has a core of its own.
bool fits(const CoreFacts& facts, int threads);

/// The host and cores of one rank.
struct RankPlacement {
  std::int64_t host = 0;  ///< equal for ranks of one host
  std::int64_t threads = 1;
  double quota = 0;          ///< of its host; 0: none
  std::vector<int> cores{};  ///< in ascending order
};
/// Every rank's placement, in rank order, the same on all. Collective.
std::vector<RankPlacement> gather_placements(Communicator& communicator, Device& device,
                                             int threads);

/// Warnings on where the ranks compute.
struct PlacementReport {
  std::vector<std::string> warnings{};  ///< with their remedies
  /// Ranks take turns on cores, and why that matters to times; empty if they do not.
  std::string shared{};
};
PlacementReport judge_placements(const std::vector<RankPlacement>& ranks);

}  // namespace zero
