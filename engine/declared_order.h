// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "engine/engine_options.h"
#include "engine/gradient_reducer.h"
#include "engine/schedule.h"
#include "engine/seal_options.h"
#include "engine/sharding.h"
#include "engine/unit.h"

namespace zero {

// From the order that a caller declares at seal() to the schedules that drive the engine.

/// The uses of one micro-batch. Throws zero::Error if `options` use an unknown unit, or use a unit
/// with trainable parameters in no backward.
std::vector<Use> declared_uses(const SealOptions& options, std::span<const Unit> units);

/// Indices of all units in the order of their first use, unused ones last: the order of updates.
std::vector<int> order_of_first_use(std::span<const Use> uses, std::size_t units);

/// Indices of the units with a backward use in the order in which a micro-batch's backward
/// completes their gradients: that of their last backward use.
std::vector<int> order_of_gradients(std::span<const Use> uses);

/// Sets Unit::sums_uses.
void mark_summed_uses(std::span<const Use> uses, std::span<Unit> units);

struct Schedules {
  Schedule training;
  Schedule evaluation;  ///< of the forward uses only
};
Schedules make_schedules(std::span<const Use> uses, std::span<const Unit> units,
                         const Sharding& sharding, const GradientReducer& reducer,
                         const EngineOptions& options);

}  // namespace zero
