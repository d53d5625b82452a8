// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "engine/gathers.h"
#include "engine/gradient_reducer.h"
#include "engine/unit.h"
#include "engine/waits.h"

namespace zero {

/// The gradients of units in a micro-batch, from the first lease that writes one to the start of
/// its reduction.
class LeasedGradients {
 public:
  /// All must outlive this.
  LeasedGradients(const EngineResources& resources, Gathers& gathers, GradientReducer& reducer,
                  const Waits& waits, std::span<Unit> units)
      : resources_(resources), gathers_(gathers), reducer_(reducer), waits_(waits), units_(units) {}

  /// Makes the memory of the gradient ready before the first write of the micro-batch.
  void prepare(const ScheduleStep& step);
  /// The memory of a parameter's gradient, for the caller to write or, in later uses, to add to;
  /// empty for frozen parameters.
  View gradient(const ScheduleStep& step, int index);
  /// After the last write of the micro-batch: completes the gradient, with zeros for parameters
  /// whose gradient was not asked for, and starts its reduction.
  void finish(const ScheduleStep& step, int micro_batch);

 private:
  Unit& unit_of(const ScheduleStep& step) const {
    return units_[static_cast<std::size_t>(step.use.unit.index)];
  }
  View whole(const ScheduleStep& step) const;
  void zero_padding(const Segment& segment, const View& whole);

  EngineResources resources_;
  Gathers& gathers_;
  GradientReducer& reducer_;
  const Waits& waits_;
  std::span<Unit> units_;
};

}  // namespace zero
