// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/schedule.h"

namespace zero {

/// A registered unit.
struct UnitId {
  int index = -1;
  friend bool operator==(UnitId, UnitId) = default;
};

/// One entry of the declared order of a micro-batch.
struct Use {
  UnitId unit;
  Phase phase = Phase::forward;
  bool needs_parameters = true;  ///< false: this backward reads no parameters (an embedding's)
};

struct SealOptions {
  /// The uses of one micro-batch; empty: every unit forward in registration order, then backward in
  /// reverse.
  std::vector<Use> order{};
  int accumulation_steps = 1;
};

}  // namespace zero
