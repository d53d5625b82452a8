// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/schedule.h"

namespace zero::audit {

/// Walks the actions of `schedule` as a run would and returns what breaks a promise of the
/// scheduler, one line each; empty when all hold: gathers come no later than their use, limits hold
/// at each moment, windows end with their last use, windows alive together share no byte, conflict
/// lists are complete and symmetric, and each unit's gradient has one window from its first to its
/// last backward.
std::string violations(const ScheduleInput& input, const Schedule& schedule);

/// How often a unit is gathered in one micro-batch.
int gathers_of(const Schedule& schedule, int unit);

/// Every unit forward in order, then backward in reverse.
std::vector<Use> forward_and_backward(int units);

}  // namespace zero::audit
