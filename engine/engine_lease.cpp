// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

namespace zero {

/// Throws unless the engine is sealed and no earlier call has failed it.
void EngineCore::check_usable(std::string_view call) const {
  check_sealed(call);
  if (failure_) std::rethrow_exception(failure_);
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
  ZERO_CHECK(gathers_->evaluating() || micro_batch_ < accumulation_steps_,
             "[rank {}] {}({}): {} of {} micro-batches are done; call step() first", rank, call,
             name, micro_batch_, accumulation_steps_);
  const UnitUse& use = gathers_->schedule().step(cursor_).use;
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
  const ScheduleStep& step = gathers_->schedule().step(cursor_);
  const auto begin = [&] {
    gathers_->make_present(step);
    if (gradients) gradients_->prepare(step);
  };
  if (gathers_->evaluating()) {
    begin();
  } else {
    costs_.expose(cursor_, begin);
  }
  leased_ = true;
  return cursor_;
}

void EngineCore::repeat(int compute_step, std::size_t nth, const Stream::Work& body) {
  if (!options_.graphs) return body();
  const UnitUse& use = gathers_->schedule().step(compute_step).use;
  graphs_.repeat({gathers_->evaluating(), compute_step, nth}, unit_at(use.unit), use.phase, body);
}

void EngineCore::discard_graphs() {
  ZERO_CHECK(!leased_, "[rank {}] discard_graphs: a lease has not ended; only between leases",
             world_.rank());
  graphs_.clear();
}

void EngineCore::end_lease(int compute_step, bool unwinding) noexcept {
  leased_ = false;
  const ScheduleStep& step = gathers_->schedule().step(compute_step);
  const auto end = [&] {
    if (step.use.phase != Phase::forward) gradients_->finish(step, micro_batch_);
    if (step.release) gathers_->release(step);
  };
  try {
    if (unwinding) {
      fail(
          "[rank {}] the lease of unit \"{}\" ended by an exception, so its micro-batch is "
          "incomplete; this engine cannot go on",
          world_.rank(), unit_of(step).name);
    }
    ++cursor_;
    const auto all = static_cast<int>(gathers_->schedule().steps.size());
    if (gathers_->evaluating()) {
      end();
    } else {
      costs_.expose(compute_step, end);
      reads_.advance(micro_batch_ * all + cursor_, accumulation_steps_ * all);
    }
    if (cursor_ == all) end_micro_batch();
  } catch (...) {
    failure_ = std::current_exception();  // rethrown by the next call
  }
}

/// Starts the first gathers of the next micro-batch; after the last one, step() does.
void EngineCore::end_micro_batch() {
  cursor_ = 0;
  if (!gathers_->evaluating() && ++micro_batch_ == accumulation_steps_) return;
  gathers_->begin_micro_batch();
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
      on != gathers_->evaluating(), "[rank {}] {}", world_.rank(),
      on ? "begin_evaluation: evaluation is on already" : "end_evaluation: evaluation is not on");
  ZERO_CHECK(cursor_ == 0 && micro_batch_ == 0 && !leased_,
             "[rank {}] {}: only between optimizer steps and whole forward passes", world_.rank(),
             on ? "begin_evaluation" : "end_evaluation");
  ZERO_CHECK(!on || !gathers_->evaluation().steps.empty(),
             "[rank {}] begin_evaluation: the sealed order has no forward use; declare one in "
             "seal()",
             world_.rank());
  synchronize();
  if (on) costs_.begin_evaluation();
  gathers_->set_evaluating(on);
  gathers_->begin_micro_batch();
  if (!on) costs_.end_evaluation();
}

}  // namespace zero
