// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/live_tensors.h"

#include "engine/schedule.h"
#include "engine/state_home.h"
#include "engine/step_progress.h"
#include "engine/unit.h"

namespace zero {
namespace {

/// A place in the schedule of a micro-batch: in a compute step, or before it.
struct Place {
  int step = 0;
  bool leased = false;

  /// Whether step `other` has begun here, in the order of the micro-batch.
  bool at_or_after(int other) const { return leased ? other <= step : other < step; }
};

/// The uses that write a unit's gradient in a micro-batch.
struct GradientUses {
  int first = -1;  ///< -1: none
  int last = -1;
  bool direct = false;  ///< into the finished gradient, without a window
};

std::vector<GradientUses> gradient_uses(const Schedule& schedule, std::size_t units) {
  std::vector<GradientUses> all(units);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const ScheduleStep& step = schedule.steps[i];
    if (!writes_gradients(step.use.phase)) continue;
    GradientUses& uses = all[static_cast<std::size_t>(step.use.unit.index)];
    if (step.first_gradient) uses = {static_cast<int>(i), 0, step.gradients < 0};
    uses.last = static_cast<int>(i);
  }
  return all;
}

class Lister {
 public:
  Lister(const StepProgress& progress, const StateHome& home, std::vector<LiveTensor>& live)
      : home_(home),
        micro_batch_(progress.micro_batch()),
        micro_batches_(progress.accumulation_steps()),
        place_{progress.compute_step(), progress.leased()},
        live_(live) {}

  void add_unit(const Unit& unit, const GradientUses& uses) {
    for (const Segment& segment : unit.segments) {
      add_states(unit, segment);
      if (segment.trainable && uses.first >= 0) add_gradients(unit, segment, uses);
    }
  }

  void add_window(const Unit& unit, const Window& window) {
    if (micro_batch_ == micro_batches_ || window.last < place_.step) return;
    const bool gradients = window.kind == Window::Kind::gradients;
    if (!place_.at_or_after(gradients ? window.first : window.issue)) return;
    add(MemoryClass::gathered, unit, gradients ? "gradient window" : "gathered parameters",
        window.bytes);
  }

 private:
  void add(MemoryClass memory_class, const Unit& unit, std::string_view what, std::int64_t bytes) {
    if (bytes > 0) live_.push_back({memory_class, unit.name, what, bytes});
  }

  void add_states(const Unit& unit, const Segment& segment) {
    const View& kept = segment.full.empty() ? segment.shard : segment.full;
    if (!home_.in_file(kept)) add(MemoryClass::parameters, unit, "parameters", kept.bytes());
    add(MemoryClass::parameters, unit, "small parameters", segment.tail.bytes());
    if (segment.master.data() != segment.own.data()) add_state(unit, "master", segment.master);
    for (const View& moment : segment.moments) add_state(unit, "moment", moment);
    for (const View& scale : segment.scales) add_state(unit, "moment scale", scale);
  }

  void add_state(const Unit& unit, std::string_view what, const View& state) {
    if (!home_.in_file(state)) add(MemoryClass::optimizer, unit, what, state.bytes());
  }

  /// The gradient is alive while a micro-batch writes it, while it holds the sum of earlier ones
  /// (ReductionPolicy::boundary, which has no partial sums), and when it is finished, then as far
  /// as the update reads it.
  void add_gradients(const Unit& unit, const Segment& segment, const GradientUses& uses) {
    const bool over = micro_batch_ == micro_batches_;
    const bool ended = !over && place_.step > uses.last;
    const int summed = micro_batch_ + (ended ? 1 : 0);
    const bool finished = summed == micro_batches_;
    const bool accumulates = segment.partials.empty() && micro_batches_ > 1 && summed > 0;
    const bool written = uses.direct && !over && !ended && place_.at_or_after(uses.first);
    if (finished) {
      add(MemoryClass::gradients, unit, "gradient", segment.finished_gradient().bytes());
    } else if (accumulates || written) {
      add(MemoryClass::gradients, unit, "gradient", segment.gradient.bytes());
    }
    for (const PartialSum& sum : segment.sums)
      add(MemoryClass::gradients, unit, "partial sum", segment.partials[sum.buffer].bytes());
  }

  const StateHome& home_;
  int micro_batch_;  // 0 and place 0 between steps
  int micro_batches_;
  Place place_;
  std::vector<LiveTensor>& live_;
};

}  // namespace

std::vector<LiveTensor> live_tensors(std::span<const Unit> units, const Schedule& schedule,
                                     const StepProgress& progress, const StateHome& home) {
  std::vector<LiveTensor> live;
  Lister lister(progress, home, live);
  const std::vector<GradientUses> uses = gradient_uses(schedule, units.size());
  for (std::size_t i = 0; i < units.size(); ++i) lister.add_unit(units[i], uses[i]);
  for (const Window& window : schedule.windows)
    lister.add_window(units[static_cast<std::size_t>(window.unit)], window);
  return live;
}

}  // namespace zero
