// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/schedule.h"

namespace zero {

struct SealOptions {
  /// The uses of one micro-batch; empty: every unit forward in registration order, then backward in
  /// reverse.
  std::vector<Use> order{};
  int accumulation_steps = 1;
};

}  // namespace zero
