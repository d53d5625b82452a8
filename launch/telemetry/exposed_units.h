// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/schedule.h"

namespace zero {

/// Where a run's compute waited for communication: per unit, and at the boundary (the global norm).
/// Of one rank.
class ExposedUnits {
 public:
  ExposedUnits(std::vector<std::string> units, const Schedule& schedule);

  /// After a step: seconds per compute step of the schedule, and of the whole step.
  void add(std::span<const double> by_use, double total);
  /// "exposed communication: 12.30 ms a step, most of it at h.3: 5.00 ms"; empty before a step and
  /// where nothing was exposed.
  std::string summary() const;

 private:
  std::vector<std::string> places_;  ///< the units, then the boundary
  std::vector<int> units_;           ///< per compute step
  std::vector<double> seconds_;      ///< per place
  int steps_ = 0;
};

}  // namespace zero
