// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The points of a sweep on a cluster that is not at hand.
#include <utility>

#include "launch/scale/scale_report.h"
#include "launch/simulate/simulate_program.h"

namespace zero {

Predictions predict(const Sweep& sweep, const std::vector<ScalePoint>& points,
                    const Machine& machine) {
  Predictions all;
  for (const ScalePoint& point : points) {
    const nlohmann::json file = sweep.configuration(point, "tokens.bin", "run.log");
    Configuration values = Configuration::from_json(file, point.name(), sweep.overrides);
    all.emplace(point.name(),
                simulate(config_on(machine, std::move(values), point.world), machine));
  }
  return all;
}

}  // namespace zero
