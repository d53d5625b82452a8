// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/leased_gradients.h"

#include <algorithm>
#include <vector>

namespace zero {

/// The whole gradient of the step's unit, padded: its window, or the finished gradient itself.
View LeasedGradients::whole(const ScheduleStep& step) const {
  const Unit& unit = unit_of(step);
  if (step.gradients < 0) return unit.trainable()->gradient;
  return gathers_.windows().view(step.gradients, reducer_.window_dtype(unit));
}

void LeasedGradients::zero_padding(const Segment& segment, const View& whole) {
  std::vector<Placement> used = segment.layout.placements();
  std::ranges::sort(used, {}, &Placement::begin);
  used.push_back({-1, segment.layout.padded(), 0});
  std::int64_t end = 0;
  for (const Placement& next : used) {
    if (next.begin > end) {
      resources_.device.kernels().zero(resources_.device.compute(),
                                       whole.slice(end, next.begin - end));
    }
    end = std::max(end, next.range().end());
  }
}

void LeasedGradients::prepare(const ScheduleStep& step) {
  Unit& unit = unit_of(step);
  const Segment* segment = unit.trainable();
  if (segment == nullptr || !step.first_gradient) return;
  Stream& compute = resources_.device.compute();
  if (step.gradients >= 0) {
    gathers_.windows().before_write(step.gradients, compute);
  } else {
    waits_.wait(compute, unit.reduced, WaitSite::reduce_before_rewrite);
  }
  const View all = whole(step);
  if (resources_.options.checked) resources_.device.kernels().poison(compute, all);
  zero_padding(*segment, all);
  std::ranges::fill(unit.requested, 0);
}

View LeasedGradients::gradient(const ScheduleStep& step, int index) {
  Unit& unit = unit_of(step);
  if (!unit.segment_of(index).trainable) return {};
  const Placement& placement = unit.placement(index);
  const View view = whole(step).slice(placement.begin, placement.count);
  char& requested = unit.requested[static_cast<std::size_t>(index)];
  if (requested == 0 && !step.first_gradient)
    resources_.device.kernels().zero(resources_.device.compute(), view);  // the user adds to it
  requested = 1;
  return view;
}

void LeasedGradients::finish(const ScheduleStep& step, int micro_batch) {
  Unit& unit = unit_of(step);
  if (unit.trainable() == nullptr || !step.last_gradient) return;
  const View all = whole(step);
  for (int i = 0; i < unit.parameters(); ++i) {
    if (unit.requested[static_cast<std::size_t>(i)] != 0 || !unit.spec(i).trainable) continue;
    const Placement& placement = unit.placement(i);
    resources_.device.kernels().zero(resources_.device.compute(),
                                     all.slice(placement.begin, placement.count));
  }
  const Event reduced = reducer_.reduce(unit, all, micro_batch);
  if (step.gradients >= 0) {
    gathers_.windows().reduced(step.gradients, reduced);
  } else {
    unit.reduced = reduced;
  }
  resources_.wait_unless_overlapped();
}

}  // namespace zero
