// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/step_progress.h"

#include "base/error.h"

namespace zero {

void StepProgress::check_enter(UnitId unit, bool gradients) const {
  const std::string_view call = gradients ? "backward" : "forward";
  ZERO_CHECK(unit.index >= 0 && unit.index < static_cast<int>(units_.size()),
             "[rank {}] {}: unit {} is not registered", rank_, call, unit.index);
  const std::string& name = units_[static_cast<std::size_t>(unit.index)].name;
  ZERO_CHECK(!leased_,
             "[rank {}] {}({}): the previous lease has not ended; one unit is present at a time",
             rank_, call, name);
  ZERO_CHECK(gathers_.evaluating() || micro_batch_ < accumulation_steps_,
             "[rank {}] {}({}): {} of {} micro-batches are done; call step() first", rank_, call,
             name, micro_batch_, accumulation_steps_);
  const Use& use = gathers_.schedule().step(compute_step_).use;
  const bool expects_gradients = writes_gradients(use.phase);
  ZERO_CHECK(use.unit.index == unit.index && expects_gradients == gradients,
             "[rank {}] {}({}) is out of order: compute step {} of the sealed order is {}({}); "
             "declare the real order in seal()",
             rank_, call, name, compute_step_, expects_gradients ? "backward" : "forward",
             units_[static_cast<std::size_t>(use.unit.index)].name);
}

void StepProgress::check_between_leases(std::string_view call) const {
  ZERO_CHECK(!leased_, "[rank {}] {}: a lease has not ended; only between leases", rank_, call);
}

void StepProgress::check_between_steps(std::string_view call) const {
  ZERO_CHECK(compute_step_ == 0 && micro_batch_ == 0 && !leased_ && !gathers_.evaluating(),
             "[rank {}] {}: only between optimizer steps", rank_, call);
}

void StepProgress::check_gradients_finished(std::string_view call, std::string_view advice) const {
  ZERO_CHECK(micro_batch_ == accumulation_steps_ && !leased_ && !gathers_.evaluating(),
             "[rank {}] {}: {} of {} micro-batches are done; {}", rank_, call, micro_batch_,
             accumulation_steps_, advice);
}

void StepProgress::check_evaluation(bool on) const {
  const std::string_view call = on ? "begin_evaluation" : "end_evaluation";
  ZERO_CHECK(on != gathers_.evaluating(), "[rank {}] {}: evaluation is {}", rank_, call,
             on ? "on already" : "not on");
  ZERO_CHECK(compute_step_ == 0 && micro_batch_ == 0 && !leased_,
             "[rank {}] {}: only between optimizer steps and whole forward passes", rank_, call);
  ZERO_CHECK(!on || !gathers_.evaluation().steps.empty(),
             "[rank {}] {}: the sealed order has no forward use; declare one in seal()", rank_,
             call);
}

bool StepProgress::advance() {
  if (++compute_step_ < static_cast<int>(gathers_.schedule().steps.size())) return false;
  compute_step_ = 0;
  return gathers_.evaluating() || ++micro_batch_ < accumulation_steps_;
}

void StepProgress::end_step(bool updated) {
  micro_batch_ = 0;
  gradients_changed_ = false;
  ++(updated ? steps_done_ : steps_skipped_);
}

}  // namespace zero
