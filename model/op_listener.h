// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "engine/schedule.h"

namespace zero {

/// The least work of one call of an operation: its arithmetic, and each operand read or written as
/// often as the operation must.
struct OpCost {
  std::string name;  ///< products with their sizes: "linear_forward 768x2304"
  double flop = 0;   ///< of the products inside; 0 for operations without any
  double bytes = 0;
};

/// Hears of operations as they are called. Called by the host thread.
class OpListener {
 public:
  virtual ~OpListener() = default;
  /// The work submitted until end() belongs to the operation.
  virtual void begin(const OpCost& cost) = 0;
  virtual void end() noexcept = 0;
  /// Work from here on belongs to a unit's forward or backward, whose lease is about to be taken.
  virtual void unit(std::string_view name, Phase phase) = 0;
};

}  // namespace zero
