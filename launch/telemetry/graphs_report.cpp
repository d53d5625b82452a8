// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/graphs_report.h"

#include <fmt/format.h>

namespace zero {
namespace {

std::string why_none(const TrainConfig& config) {
  if (!config.engine.graphs) return "run.graphs is false";
  if (config.mesh.tensor > 1) return "collectives of the tensor group lie inside the passes";
  if (config.run.profile || !config.run.trace.empty()) return "every operation was timed";
  return "no pass came a second time";
}

}  // namespace

std::string graphs_text(const KeptPasses& kept, const TrainConfig& config) {
  if (kept.refused > 0) {
    return fmt::format("graphs: {} pass(es) of units kept, {} submitted piece by piece: {}",
                       kept.passes, kept.refused, kept.refusal);
  }
  if (kept.passes == 0) return fmt::format("graphs: none, {}", why_none(config));
  return fmt::format("graphs: {} passes of units, {} kernels, fills and copies in all, were kept",
                     kept.passes, kept.pieces);
}

nlohmann::ordered_json graphs_json(const KeptPasses& kept, const TrainConfig& config) {
  return {{"passes", kept.passes},
          {"pieces", kept.pieces},
          {"refused", kept.refused},
          {"text", graphs_text(kept, config)}};
}

}  // namespace zero
