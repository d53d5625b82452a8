// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/engine_core.h"

namespace zero {

/// Throws unless the engine is sealed and no earlier call has failed it.
void EngineCore::check_usable(std::string_view call) const {
  check_sealed(call);
  if (failure_) std::rethrow_exception(failure_);
}

const ModelState& EngineCore::state(std::string_view call) {
  check_usable(call);
  synchronize();
  return *state_;
}

/// Throws unless the next compute step is this use of the unit.
void EngineCore::check_enter(UnitId unit, bool gradients) const {
  const std::string_view call = gradients ? "backward" : "forward";
  check_usable(call);
  const int rank = world_.rank();
  ZERO_CHECK(unit.index >= 0 && unit.index < static_cast<int>(units_.size()),
             "[rank {}] {}: unit {} is not registered", rank, call, unit.index);
  const std::string& name = unit_at(unit.index).name;
  ZERO_CHECK(!leased_,
             "[rank {}] {}({}): the previous lease has not ended; one unit is present at a time",
             rank, call, name);
  ZERO_CHECK(evaluating_ || micro_batch_ < accumulation_steps_,
             "[rank {}] {}({}): {} of {} micro-batches are done; call step() first", rank, call,
             name, micro_batch_, accumulation_steps_);
  const UnitUse& use = schedule_now().step(cursor_).use;
  const bool expects_gradients = use.phase != Phase::forward;
  ZERO_CHECK(use.unit == unit.index && expects_gradients == gradients,
             "[rank {}] {}({}) is out of order: compute step {} of the sealed order is {}({}); "
             "declare the real order in seal()",
             rank, call, name, cursor_, expects_gradients ? "backward" : "forward",
             unit_at(use.unit).name);
}

/// Takes the next compute step for `unit`, or throws before anything is submitted.
int EngineCore::enter(UnitId unit, bool gradients) {
  check_enter(unit, gradients);
  const ScheduleStep& step = schedule_now().step(cursor_);
  Stream& compute = device_.compute();
  const double before = compute.waited_seconds();
  for (const int window : step.gathers) issue_gather(window);
  if (step.parameters >= 0)
    waits_.wait(compute, drive().arena->gathered(step.parameters), WaitSite::gather_before_use);
  waits_.wait(compute, unit_at(unit.index).ready, WaitSite::publish_before_use);
  if (gradients) prepare_gradients(step);
  if (!evaluating_)
    exposed_[static_cast<std::size_t>(cursor_)] += compute.waited_seconds() - before;
  leased_ = true;
  return cursor_;
}

void EngineCore::issue_gather(int window) {
  const Unit& unit = unit_at(schedule_now().window(window).unit);
  drive().arena->before_gather(window, device_.communication());
  View memory = drive().arena->view(window, options_.compute);
  for (const Segment& segment : unit.segments) {
    const std::int64_t count = sharding_->window_elements(segment);
    sharding_->gather(segment, memory.slice(0, count), {unit.name, {}});
    memory = memory.slice(count, memory.count() - count);
  }
  drive().arena->gathered(window, device_.communication().record());
  settle();
}

/// After the update of `unit`: issues the gathers that the schedule starts before a micro-batch, in
/// its order, up to the first of a unit not updated yet. The order must be kept: a unit's gather
/// for backward may precede the end of forward, but not another unit's gather for forward.
void EngineCore::issue_begin(int unit, Renewal& renewal) {
  renewal.units.push_back(unit);
  const std::vector<int>& begin = schedule_now().begin;
  for (; renewal.issued < begin.size(); ++renewal.issued) {
    const int window = begin[renewal.issued];
    const int needed = schedule_now().window(window).unit;
    if (std::ranges::find(renewal.units, needed) == renewal.units.end()) return;
    issue_gather(window);
  }
}

/// Without overlap, makes the compute stream wait for the collective just submitted.
void EngineCore::settle() {
  if (!options_.overlap) device_.compute().wait(device_.communication().record());
}

View EngineCore::parameter(int step, int index) const {
  const ScheduleStep& at = schedule_now().step(step);
  const Unit& unit = unit_of(step);
  ZERO_CHECK(at.use.needs_parameters,
             "parameter {} of unit \"{}\": this use was declared with needs_parameters = false",
             index, unit.name);
  const Placement& placement = unit.placement(index);
  const Segment& chosen = unit.segment_of(index);
  View window;
  if (at.parameters >= 0) {
    std::int64_t begin = 0;
    for (const Segment& segment : unit.segments) {
      if (&segment == &chosen) break;
      begin += sharding_->window_elements(segment);
    }
    window = drive()
                 .arena->view(at.parameters, options_.compute)
                 .slice(begin, sharding_->window_elements(chosen));
  }
  return sharding_->parameters(chosen, window, placement.begin, placement.count);
}

/// The whole gradient of the step's unit, padded: its window, or the finished gradient
/// itself.
View EngineCore::gradient_base(const ScheduleStep& step) const {
  const Unit& unit = unit_at(step.use.unit);
  if (step.gradients < 0) return unit.trainable()->gradient;
  return drive().arena->view(step.gradients, reducer_->window_dtype(unit));
}

void EngineCore::zero_padding(const Segment& segment, View base) {
  std::vector<Placement> used = segment.layout.placements();
  std::ranges::sort(used, {}, &Placement::begin);
  used.push_back({-1, segment.layout.padded(), 0});
  std::int64_t end = 0;
  for (const Placement& next : used) {
    if (next.begin > end)
      device_.kernels().zero(device_.compute(), base.slice(end, next.begin - end));
    end = std::max(end, next.range().end());
  }
}

void EngineCore::prepare_gradients(const ScheduleStep& step) {
  Unit& unit = unit_at(step.use.unit);
  const Segment* segment = unit.trainable();
  if (segment == nullptr || !step.first_gradient) return;
  if (step.gradients >= 0) {
    drive().arena->before_write(step.gradients, device_.compute());
  } else {
    waits_.wait(device_.compute(), unit.reduced, WaitSite::reduce_before_rewrite);
  }
  const View base = gradient_base(step);
  if (options_.checked) device_.kernels().poison(device_.compute(), base);
  zero_padding(*segment, base);
  std::ranges::fill(unit.requested, 0);
}

View EngineCore::gradient(int step, int index) {
  const ScheduleStep& at = schedule_now().step(step);
  Unit& unit = unit_at(at.use.unit);
  if (!unit.segment_of(index).trainable) return {};
  const Placement& placement = unit.placement(index);
  const View view = gradient_base(at).slice(placement.begin, placement.count);
  char& requested = unit.requested[static_cast<std::size_t>(index)];
  if (requested == 0 && !at.first_gradient)
    device_.kernels().zero(device_.compute(), view);  // the user adds to it
  requested = 1;
  return view;
}

/// Completes the unit's gradient of this micro-batch, with zeros for parameters whose gradient was
/// not asked for, and starts its reduction.
void EngineCore::finish_gradients(const ScheduleStep& step) {
  Unit& unit = unit_at(step.use.unit);
  if (unit.trainable() == nullptr || !step.last_gradient) return;
  const View base = gradient_base(step);
  for (int i = 0; i < unit.parameters(); ++i) {
    if (unit.requested[static_cast<std::size_t>(i)] != 0 || !unit.spec(i).trainable) continue;
    const Placement& placement = unit.placement(i);
    device_.kernels().zero(device_.compute(), base.slice(placement.begin, placement.count));
  }
  const Event reduced = reducer_->reduce(unit, base, micro_batch_);
  if (step.gradients >= 0) {
    drive().arena->reduced(step.gradients, reduced);
  } else {
    unit.reduced = reduced;
  }
  settle();
}

void EngineCore::release(const ScheduleStep& step) {
  if (options_.checked) {
    device_.kernels().poison(device_.compute(),
                             drive().arena->view(step.parameters, options_.compute));
  }
  drive().arena->released(step.parameters, device_.compute().record());
}

void EngineCore::repeat(int step, std::size_t nth, const Stream::Work& body) {
  if (!options_.graphs) return body();
  const UnitUse& use = schedule_now().step(step).use;
  graphs_.repeat({evaluating_, step, nth}, unit_at(use.unit), use.phase, body);
}

void EngineCore::forget_passes() {
  ZERO_CHECK(!leased_, "[rank {}] forget_passes: a lease has not ended; only between leases",
             world_.rank());
  graphs_.clear();
}

void EngineCore::end_lease(int step, bool unwinding) noexcept {
  leased_ = false;
  const ScheduleStep& at = schedule_now().step(step);
  try {
    if (unwinding) {
      fail(
          "[rank {}] the lease of unit \"{}\" ended by an exception, so its micro-batch is "
          "incomplete; this engine cannot go on",
          world_.rank(), unit_of(step).name);
    }
    const double before = device_.compute().waited_seconds();
    if (at.use.phase != Phase::forward) finish_gradients(at);
    if (at.release) release(at);
    if (!evaluating_)
      exposed_[static_cast<std::size_t>(step)] += device_.compute().waited_seconds() - before;
    if (++cursor_ == static_cast<int>(schedule_now().steps.size())) end_micro_batch();
  } catch (...) {
    failure_ = std::current_exception();  // rethrown by the next call
  }
}

/// Starts the first gathers of the next micro-batch; after the last one, step() does.
void EngineCore::end_micro_batch() {
  cursor_ = 0;
  if (!evaluating_ && ++micro_batch_ == accumulation_steps_) return;
  for (const int window : schedule_now().begin) issue_gather(window);
}

void EngineCore::synchronize() {
  device_.compute().synchronize();
  device_.communication().synchronize();
}

/// Windows of the two schedules share memory, so both streams finish before the other schedule
/// takes over. Traffic of the evaluation, and of the gathers repeated because of it, belongs to no
/// step.
void EngineCore::set_evaluation(bool on) {
  check_usable(on ? "begin_evaluation" : "end_evaluation");
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
  for (const int window : schedule_now().begin) issue_gather(window);
  if (!on) traffic_mark_ = mesh_->traffic().since(evaluation_traffic_);
  waited_mark_ = device_.compute().waited_seconds();
}

}  // namespace zero
