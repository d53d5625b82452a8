// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "engine/schedule.h"
#include "model/ops.h"

namespace zero {

/// What one call of an operation cannot do without: its arithmetic, and its operands read and
/// written once each.
struct OpCost {
  std::string
      name;  ///< with the sizes that tell a layer's products apart: "linear_forward 768x2304"
  double flop = 0;  ///< of the products inside; 0 for operations without any
  double bytes = 0;
};

/// Hears of operations as they are called. Called by the host thread.
class OpListener {
 public:
  virtual ~OpListener() = default;
  /// The work submitted until end() belongs to the operation.
  virtual void begin(const OpCost& cost) = 0;
  virtual void end() noexcept = 0;
  /// From now on the work is that of a unit's forward or backward: its lease is about to be taken.
  virtual void unit(std::string_view name, Phase phase) = 0;
};

/// `inner` with a listener, which must outlive it: the same calls in the same order. An operation
/// that gives what two others give is heard as one where the device joins them, else as those two.
std::unique_ptr<Ops> observe_ops(std::unique_ptr<Ops> inner, OpListener& listener);

}  // namespace zero
