// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/telemetry/exposed_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace zero {

ExposedUnits::ExposedUnits(std::vector<std::string> units, const Schedule& schedule)
    : places_(std::move(units)) {
  places_.emplace_back("the boundary");
  for (const ScheduleStep& step : schedule.steps) units_.push_back(step.use.unit);
  seconds_.assign(places_.size(), 0.0);
}

void ExposedUnits::add(std::span<const double> by_use, double total) {
  for (std::size_t i = 0; i < by_use.size(); ++i) {
    seconds_[static_cast<std::size_t>(units_[i])] += by_use[i];
    total -= by_use[i];
  }
  seconds_.back() += std::max(0.0, total);
  ++steps_;
}

std::string ExposedUnits::summary() const {
  const double total = std::accumulate(seconds_.begin(), seconds_.end(), 0.0);
  if (total <= 0) return {};
  const auto worst = std::max_element(seconds_.begin(), seconds_.end());
  return fmt::format(
      "exposed communication: {:.2f} ms a step, most of it at {}: {:.2f} ms", 1e3 * total / steps_,
      places_[static_cast<std::size_t>(worst - seconds_.begin())], 1e3 * *worst / steps_);
}

}  // namespace zero
