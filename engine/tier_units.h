// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "engine/sharding.h"
#include "engine/tier_options.h"
#include "engine/unit.h"

namespace zero {

/// For each unit, whether values of it live below the device's memory: the same on all ranks.
struct TierUnits {
  std::vector<bool> states;
  std::vector<bool> parameters;
};

/// The units whose values `tiers` asks to have there. `units` are laid out; `order`: all of
/// them, that of updates. A unit that does not fit into what is left of a share, such as a wide
/// embedding, is passed over.
TierUnits units_away(std::span<const Unit> units, std::span<const int> order,
                     const Sharding& sharding, const TierOptions& tiers);

}  // namespace zero
