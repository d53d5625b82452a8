// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/engine_core.h"

namespace zero {

void EngineCore::raise_failure() {
  if (failure_) std::rethrow_exception(failure_);
}

/// Takes the next compute step for `unit`, or throws before anything is submitted.
int EngineCore::enter(UnitId unit, bool gradients) {
  const std::string_view call = gradients ? "backward" : "forward";
  check_sealed(call);
  raise_failure();
  const int rank = world_.rank();
  ZERO_CHECK(unit.index >= 0 && unit.index < static_cast<int>(units_.size()),
             "[rank {}] {}: unit {} is not registered", rank, call, unit.index);
  const std::string& name = units_[static_cast<std::size_t>(unit.index)].name;
  ZERO_CHECK(!leased_,
             "[rank {}] {}({}): the previous lease has not ended; one unit is present at a time",
             rank, call, name);
  ZERO_CHECK(evaluating_ || micro_batch_ < accumulation_steps_,
             "[rank {}] {}({}): {} of {} micro-batches are done; call step() first", rank, call,
             name, micro_batch_, accumulation_steps_);
  const ScheduleStep& step = drive().schedule.steps[static_cast<std::size_t>(cursor_)];
  const bool expects_gradients = step.use.phase != Phase::forward;
  ZERO_CHECK(step.use.unit == unit.index && expects_gradients == gradients,
             "[rank {}] {}({}) is out of order: compute step {} of the sealed order is {}({}); "
             "declare the real order in seal()",
             rank, call, name, cursor_, expects_gradients ? "backward" : "forward",
             units_[static_cast<std::size_t>(step.use.unit)].name);
  const double before = device_.compute().waited_seconds();
  for (const int window : step.gathers) issue_gather(window);
  if (step.parameters >= 0)
    waits_.wait(device_.compute(), drive().arena->gathered(step.parameters),
                WaitSite::gather_before_use);
  waits_.wait(device_.compute(), units_[static_cast<std::size_t>(unit.index)].ready,
              WaitSite::publish_before_use);
  if (gradients) prepare_gradients(step);
  if (!evaluating_)
    exposed_[static_cast<std::size_t>(cursor_)] += device_.compute().waited_seconds() - before;
  leased_ = true;
  return cursor_;
}

ParameterLease EngineCore::forward(UnitId unit) { return {*this, enter(unit, false)}; }
GradientLease EngineCore::backward(UnitId unit) { return {*this, enter(unit, true)}; }

void EngineCore::issue_gather(int window) {
  const Window& w = drive().schedule.windows[static_cast<std::size_t>(window)];
  const Unit& unit = units_[static_cast<std::size_t>(w.unit)];
  drive().arena->before_gather(window, device_.communication());
  View memory = drive().arena->view(window, options_.compute, w.bytes / size_of(options_.compute));
  for (const Segment& segment : unit.segments) {
    const std::int64_t count = sharding_->window_elements(segment);
    sharding_->gather(segment, memory.slice(0, count), {unit.name, {}});
    memory = memory.slice(count, memory.count() - count);
  }
  drive().arena->gathered(window, device_.communication().record());
  settle();
}

/// After `unit` has its new values: goes on with the gathers that the schedule starts before a
/// micro-batch, in its order, as far as units have new values. A unit's gather for backward may
/// come before the forward ends, but not before another's for forward.
void EngineCore::issue_begin(int unit, Renewal& renewal) {
  renewal.units.push_back(unit);
  const std::vector<int>& begin = drive().schedule.begin;
  for (; renewal.issued < begin.size(); ++renewal.issued) {
    const int window = begin[renewal.issued];
    const int needed = drive().schedule.windows[static_cast<std::size_t>(window)].unit;
    if (std::find(renewal.units.begin(), renewal.units.end(), needed) == renewal.units.end())
      return;
    issue_gather(window);
  }
}

/// Without overlap the compute stream waits for what was just submitted.
void EngineCore::settle() {
  if (!options_.overlap) device_.compute().wait(device_.communication().record());
}

View EngineCore::parameter(int step, int index) const {
  const ScheduleStep& at = drive().schedule.steps[static_cast<std::size_t>(step)];
  const Unit& unit = units_[static_cast<std::size_t>(at.use.unit)];
  ZERO_CHECK(at.use.needs_parameters,
             "parameter {} of unit \"{}\": this use was declared with needs_parameters = false",
             index, unit.name);
  const Placement& placement = unit.placement(index);
  const Segment& chosen = unit.segment_of(index);
  View window;
  if (at.parameters >= 0) {
    const Window& w = drive().schedule.windows[static_cast<std::size_t>(at.parameters)];
    const View all =
        drive().arena->view(at.parameters, options_.compute, w.bytes / size_of(options_.compute));
    std::int64_t begin = 0;
    for (const Segment& segment : unit.segments) {
      if (&segment == &chosen) break;
      begin += sharding_->window_elements(segment);
    }
    window = all.slice(begin, sharding_->window_elements(chosen));
  }
  return sharding_->parameters(chosen, window, placement.begin, placement.count);
}

/// The whole gradient of the step's unit, padded: its window, or the place where the finished
/// gradient lives.
View EngineCore::gradient_base(const ScheduleStep& step) const {
  const Unit& unit = units_[static_cast<std::size_t>(step.use.unit)];
  if (step.gradients < 0) return unit.trainable()->gradient;
  const DType dtype = reducer_->window_dtype(shared_[static_cast<std::size_t>(step.use.unit)] != 0);
  return drive().arena->view(step.gradients, dtype, unit.trainable()->layout.padded());
}

void EngineCore::zero_padding(const Segment& segment, View base) {
  std::vector<std::pair<std::int64_t, std::int64_t>> used;
  for (const Placement& placement : segment.layout.placements())
    used.emplace_back(placement.begin, placement.begin + placement.count);
  std::sort(used.begin(), used.end());
  used.emplace_back(segment.layout.padded(), segment.layout.padded());
  std::int64_t end = 0;
  for (const auto& [begin, stop] : used) {
    if (begin > end) device_.kernels().zero(device_.compute(), base.slice(end, begin - end));
    end = std::max(end, stop);
  }
}

void EngineCore::prepare_gradients(const ScheduleStep& step) {
  const auto index = static_cast<std::size_t>(step.use.unit);
  const Segment* segment = units_[index].trainable();
  if (segment == nullptr || !step.first_gradient) return;
  if (step.gradients >= 0) {
    drive().arena->before_write(step.gradients, device_.compute());
  } else {
    waits_.wait(device_.compute(), rewritable_[index], WaitSite::reduce_before_rewrite);
  }
  const View base = gradient_base(step);
  if (options_.checked) device_.kernels().poison(device_.compute(), base);
  zero_padding(*segment, base);
  std::fill(asked_[index].begin(), asked_[index].end(), 0);
}

View EngineCore::gradient(int step, int index) {
  const ScheduleStep& at = drive().schedule.steps[static_cast<std::size_t>(step)];
  const auto unit_index = static_cast<std::size_t>(at.use.unit);
  const Unit& unit = units_[unit_index];
  if (!unit.segment_of(index).trainable) return {};
  const Placement& placement = unit.placement(index);
  const View view = gradient_base(at).slice(placement.begin, placement.count);
  char& asked = asked_[unit_index][static_cast<std::size_t>(index)];
  if (asked == 0 && !at.first_gradient)
    device_.kernels().zero(device_.compute(), view);  // the user adds to it
  asked = 1;
  return view;
}

const Unit& EngineCore::unit_of(int step) const {
  return units_[static_cast<std::size_t>(
      drive().schedule.steps[static_cast<std::size_t>(step)].use.unit)];
}

bool EngineCore::accumulates(int step) const {
  return !drive().schedule.steps[static_cast<std::size_t>(step)].first_gradient;
}

/// The unit's gradient of this micro-batch is complete: what was never asked for is zero; then it
/// is reduced.
void EngineCore::finish_gradients(const ScheduleStep& step) {
  const auto index = static_cast<std::size_t>(step.use.unit);
  Unit& unit = units_[index];
  if (unit.trainable() == nullptr || !step.last_gradient) return;
  const View base = gradient_base(step);
  for (std::size_t i = 0; i < asked_[index].size(); ++i) {
    if (asked_[index][i] != 0 || !unit.specs[i].trainable) continue;
    const Placement& placement = unit.placement(static_cast<int>(i));
    device_.kernels().zero(device_.compute(), base.slice(placement.begin, placement.count));
  }
  const Event reduced = reducer_->reduce(unit, base, micro_batch_);
  if (step.gradients >= 0) {
    drive().arena->reduced(step.gradients, reduced);
  } else {
    rewritable_[index] = reduced;
  }
  settle();
}

void EngineCore::end_lease(int step, bool unwinding, bool gradients) noexcept {
  leased_ = false;
  const ScheduleStep& at = drive().schedule.steps[static_cast<std::size_t>(step)];
  try {
    if (unwinding) {
      fail(
          "[rank {}] the lease of unit \"{}\" ended by an exception, so its micro-batch is "
          "incomplete; this engine cannot go on",
          world_.rank(), unit_of(step).name);
    }
    const double before = device_.compute().waited_seconds();
    if (gradients) finish_gradients(at);
    if (at.release) {
      if (options_.checked) {
        const Window& w = drive().schedule.windows[static_cast<std::size_t>(at.parameters)];
        device_.kernels().poison(device_.compute(),
                                 drive().arena->view(at.parameters, options_.compute,
                                                     w.bytes / size_of(options_.compute)));
      }
      drive().arena->released(at.parameters, device_.compute().record());
    }
    if (!evaluating_)
      exposed_[static_cast<std::size_t>(step)] += device_.compute().waited_seconds() - before;
    if (++cursor_ == static_cast<int>(drive().schedule.steps.size())) end_micro_batch();
  } catch (...) {
    failure_ = std::current_exception();  // rethrown by the next call
  }
}

/// The next micro-batch of the same step starts its first gathers now; after the last one, step()
/// does.
void EngineCore::end_micro_batch() {
  cursor_ = 0;
  if (!evaluating_ && ++micro_batch_ == accumulation_steps_) return;
  for (const int window : drive().schedule.begin) issue_gather(window);
}

void EngineCore::synchronize() {
  device_.compute().synchronize();
  device_.communication().synchronize();
}

/// Windows of the two schedules share memory: both streams end before one takes over. Traffic of
/// the evaluation, and of the gathers that it makes necessary again, belongs to no step.
void EngineCore::set_evaluation(bool on) {
  check_sealed(on ? "begin_evaluation" : "end_evaluation");
  raise_failure();
  ZERO_CHECK(
      on != evaluating_, "[rank {}] {}", world_.rank(),
      on ? "begin_evaluation: evaluation is on already" : "end_evaluation: evaluation is not on");
  ZERO_CHECK(cursor_ == 0 && micro_batch_ == 0 && !leased_,
             "[rank {}] {}: only between optimizer steps and whole forward passes", world_.rank(),
             on ? "begin_evaluation" : "end_evaluation");
  ZERO_CHECK(!on || !evaluation_.schedule.steps.empty(),
             "[rank {}] begin_evaluation: the sealed order has no forward use; declare one in "
             "seal()",
             world_.rank());
  synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  if (on) evaluation_traffic_ = pending;
  evaluating_ = on;
  for (const int window : drive().schedule.begin) issue_gather(window);
  if (!on) traffic_mark_ = mesh_->traffic().since(evaluation_traffic_);
  waited_mark_ = device_.compute().waited_seconds();
}

}  // namespace zero
