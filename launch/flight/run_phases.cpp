// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/flight/run_phases.h"

#include <utility>

namespace zero {

RunPhases::RunPhases(std::vector<PhaseListener*> listeners) : listeners_(std::move(listeners)) {}

void RunPhases::at(std::int64_t step, std::string_view name) {
  step_ = step;
  name_ = name;
  for (PhaseListener* each : listeners_) each->phase(step, name);
}

// Units are computed in validation too, which is a phase of its own.
void RunPhases::unit(std::string_view /*name*/, Phase phase) {
  if (name_ != "forward" && name_ != "backward") return;
  // The head's lease is both; what follows is backward.
  const std::string_view now = phase == Phase::forward ? "forward" : "backward";
  if (now != name_) at(step_, now);
}

}  // namespace zero
