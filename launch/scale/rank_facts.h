// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/ranks_of_hosts.h"
#include "launch/rendezvous/host_addresses.h"
#include "launch/scale/preflight_line.h"

namespace zero {

/// What one rank finds on its host.
struct RankFacts {
  static constexpr std::int64_t kUnlimited = -1;

  std::string host{};
  std::string version{};
  std::string build{};
  std::string mpi{};
  std::string driver{};   ///< newest CUDA of the driver, "13.0" or "none"
  std::string runtime{};  ///< CUDA of the build
  std::string nccl{};
  bool has_nccl = false;
  int gpus = 0;        ///< that this process sees
  std::string gpu{};   ///< the one that it takes, unique in the world; or why it has none
  std::string kind{};  ///< its name
  bool infiniband = false;
  std::int64_t locked_memory = kUnlimited;  ///< that a process may lock
  std::int64_t shared_memory = 0;           ///< of /dev/shm
  std::vector<HostAddress> addresses{};
};
RankFacts rank_facts(const Communicator& ranks, const PreflightQuestion& question);
/// The hosts of all ranks.
RanksOfHosts hosts_of(const std::vector<RankFacts>& ranks);

void to_json(nlohmann::json& json, const HostAddress& address);
void from_json(const nlohmann::json& json, HostAddress& address);
void to_json(nlohmann::json& json, const RankFacts& facts);
void from_json(const nlohmann::json& json, RankFacts& facts);

/// Whether a process with that /proc/self/status may lock memory whatever its limit: it has the
/// capability IPC_LOCK, as containers of Kubernetes are given it.
bool may_lock_any_memory(std::istream& status);

/// What is right and wrong with the facts of all ranks, in rank order.
std::vector<PreflightLine> judge(const std::vector<RankFacts>& ranks,
                                 const PreflightQuestion& question);

/// Whether NCCL may connect the GPUs: nothing is wrong of which it would fail in words of its own.
bool nccl_may_start(const std::vector<PreflightLine>& lines);

}  // namespace zero
