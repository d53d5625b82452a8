// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "engine/schedule.h"
#include "ops/op_listener.h"

namespace zero {

/// Is notified of a model's operations, and of the units that they belong to.
class UnitListener : public OpListener {
 public:
  /// Later work belongs to this phase of a unit. Its lease is acquired next; backward that follows
  /// recompute in one lease is told within it.
  virtual void unit(std::string_view name, Phase phase) = 0;
  /// Whether to notify of operations too. Passes whose parts need no notice may be replayed as
  /// graphs.
  virtual bool hears_operations() const { return true; }
};

}  // namespace zero
