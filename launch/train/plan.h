// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/counted_mesh.h"
#include "launch/process/memory_use.h"

namespace zero {

/// The memory and traffic of a run, computed without training or allocating.
struct Plan {
  int world = 1;
  int stage = 0;
  MemoryUse memory;     ///< each figure is the largest of all ranks'
  MeshTraffic traffic;  ///< bytes the first rank sends in a step, by axis
  std::int64_t parameters = 0;
  std::int64_t padding = 0;
  std::int64_t peak_live_elements = 0;
  std::int64_t gathers = 0;  ///< per micro-batch
  std::uint64_t schedule_hash = 0;
  std::vector<std::string> schedule;  ///< one line per action
  MeshShape mesh;
  std::string recompute;       ///< what backward computes again, by block
  bool keeps_outputs = false;  ///< of norms and GELU, for backward
  std::string ownership;  ///< the part of every parameter on each axis; empty if there is one axis

  nlohmann::json json() const;
  std::string text() const;

 private:
  std::string memory_text() const;
  std::string traffic_text() const;
};

/// The ranks whose memory stands for that of all. Shards are equal, so ranks differ only by uneven
/// slices of the tensor axis: one rank of each tensor index and the last rank suffice; a small
/// world is planned whole.
std::vector<int> planned_ranks(const TrainConfig& config);

/// Their memory, by rank.
using RankPlans = std::map<int, MemoryUse>;
RankPlans plan_ranks(const TrainConfig& config, BackendKind backend);

/// Plans `config` for its world.
Plan make_plan(const TrainConfig& config, BackendKind backend);

/// {"all_gather_bytes": ..., "reduce_scatter_bytes": ..., "all_reduce_bytes": ...}
nlohmann::json traffic_json(const TrafficCounter& traffic);
/// {axis: traffic_json} for the axes of several ranks, and "across" for calls over several axes.
nlohmann::json axes_json(const MeshTraffic& traffic, const MeshShape& mesh);

}  // namespace zero
