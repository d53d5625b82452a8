// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "engine/engine_options.h"
#include "engine/schedule.h"
#include "engine/unit.h"

namespace zero {

/// The properties that ranks must have in common at seal(), as lines for require_agreement(): all
/// ranks, or (slices and the schedule that follows from them) those of one tensor index.
std::string seal_agreement(const EngineOptions& options, int accumulation_steps,
                           std::span<const Unit> units, const Schedule& schedule,
                           const Device& device);

}  // namespace zero
