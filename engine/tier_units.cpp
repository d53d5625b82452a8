// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/tier_units.h"

#include <cstddef>
#include <cstdint>

namespace zero {
namespace {

/// Elements of a unit's optimizer states, of all ranks that share them.
std::int64_t trained_elements(const Unit& unit) {
  const Segment* segment = unit.trainable();
  return segment == nullptr ? 0 : segment->layout.padded();
}

/// Elements of the shards that a rank keeps of a unit; 0 if the unit stays whole.
std::int64_t shard_elements(const Unit& unit, const Sharding& sharding) {
  std::int64_t sum = 0;
  for (const Segment& segment : unit.segments) {
    if (sharding.window_elements(segment) > 0) sum += segment.layout.shard();
  }
  return sum;
}

}  // namespace

TierUnits units_away(std::span<const Unit> units, std::span<const int> order,
                     const Sharding& sharding, const TierOptions& tiers) {
  TierUnits away{std::vector<bool>(units.size()), std::vector<bool>(units.size())};
  double all = 0;
  for (const Unit& unit : units) all += static_cast<double>(trained_elements(unit));
  double states = tiers.optimizer != Tier::device ? tiers.optimizer_ratio * all : -1;
  std::int64_t in_memory = tiers.parameters_in_memory;
  for (const int index : order) {
    const auto at = static_cast<std::size_t>(index);
    const auto trained = static_cast<double>(trained_elements(units[at]));
    away.states[at] = trained <= states;
    if (away.states[at]) states -= trained;
    const std::int64_t shards = shard_elements(units[at], sharding);
    if (tiers.parameters == Tier::device || shards == 0) continue;
    away.parameters[at] = shards > in_memory;
    if (!away.parameters[at]) in_memory -= shards;
  }
  return away;
}

}  // namespace zero
