// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/recording.h"
#include "launch/memory_report.h"

namespace zero {

/// What a run would take: nothing is trained or allocated.
struct Plan {
  int world = 1;
  int stage = 0;
  MemoryByClass memory{};  ///< bytes of the largest rank
  TrafficCounter traffic;  ///< bytes one rank sends in a step
  std::int64_t parameters = 0;
  std::int64_t padding = 0;
  std::int64_t peak_live_elements = 0;
  std::int64_t gathers = 0;  ///< per micro-batch
  std::uint64_t schedule_hash = 0;
  std::vector<std::string> schedule;  ///< one line per action

  nlohmann::json json() const;
  std::string text() const;
};

/// Plans `config` for its world.
Plan make_plan(const TrainConfig& config, std::string_view backend);

/// {"all_gather_bytes": ..., "reduce_scatter_bytes": ..., "all_reduce_bytes": ...}
nlohmann::json traffic_json(const TrafficCounter& traffic);

}  // namespace zero
