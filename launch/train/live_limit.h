// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/schedule.h"

namespace zero {

/// A line for people if stage3_max_live_parameters matters to `schedule`, made with `limits`: if
/// more is gathered at once than DeepSpeed's default because the key is not given, or if the value
/// given is what keeps units from being gathered ahead. Else empty.
std::string live_limit_line(const Schedule& schedule, const ScheduleLimits& limits);

}  // namespace zero
