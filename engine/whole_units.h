// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/schedule.h"

namespace zero {

/// ScheduleLimits::persistence_threshold if none is given, in elements.
inline constexpr std::int64_t kSmallParameter = 100'000;

/// The bytes of a unit's compute copies that live between steps on one rank.
struct KeptBytes {
  std::int64_t sharded =
      0;                   ///< if the unit is gathered around compute: its shard, small parameters
  std::int64_t whole = 0;  ///< if it stays whole
};

/// The two schedules whose windows share an arena; their units and limits are the same.
struct ScheduleInputs {
  ScheduleInput training;
  ScheduleInput evaluation;  ///< of the forward uses only
};
/// The inputs of a schedule of training, and of its forward uses.
ScheduleInputs with_evaluation(ScheduleInput training);

/// Selects the units that stay whole: those of at least n elements, with the n for which kept
/// copies and parameter windows take the fewest bytes together, and of equal ones the one that
/// gathers least. One n keeps all units, so the sum is never above that of whole parameters: on few
/// ranks, a unit's window can take more than its shard saves. A pure function, the same on all
/// ranks that share a schedule. `kept` has an entry for each unit.
std::vector<bool> choose_whole_units(const ScheduleInputs& inputs, std::span<const KeptBytes> kept);

/// The bytes that choose_whole_units() compares: kept copies and parameter windows if the units
/// marked in `whole` are never gathered.
std::int64_t parameter_bytes(const ScheduleInputs& inputs, std::span<const KeptBytes> kept,
                             const std::vector<bool>& whole);

}  // namespace zero
