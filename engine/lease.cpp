// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/lease.h"

#include <exception>
#include <utility>

#include "base/error.h"
#include "engine/engine_core.h"

namespace zero {

Lease::Lease(EngineCore& core, int compute_step)
    : core_(&core),
      life_(core.weak_from_this()),
      step_(&core.parts().gathers.schedule().step(compute_step)),
      compute_step_(compute_step),
      unwinding_(std::uncaught_exceptions()) {}

Lease::Lease(Lease&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      life_(other.life_),
      step_(other.step_),
      compute_step_(other.compute_step_),
      unwinding_(other.unwinding_),
      repeated_(other.repeated_) {}

Lease::~Lease() {
  if (core_ == nullptr || life_.expired()) return;
  core_->end_lease(compute_step_, std::uncaught_exceptions() > unwinding_);
}

void Lease::repeat(const std::function<void()>& body) {
  core().repeat(compute_step_, repeated_++, body);
}

EngineCore& Lease::core() const {
  ZERO_CHECK(core_ != nullptr, "a lease is used that was moved from; use the one it was moved to");
  ZERO_CHECK(!life_.expired(),
             "a lease is used whose engine was destroyed; the engine must outlive its leases");
  return *core_;
}

const ScheduleStep& Lease::step() const {
  static_cast<void>(core());
  return *step_;
}

int Lease::find(std::string_view parameter) const {
  return core().unit_at(step().use.unit.index).find(parameter);
}
View Lease::at(int index) const { return core().parts().gathers.parameter(step(), index); }

View ParameterLease::operator[](std::string_view parameter) const { return at(find(parameter)); }

View GradientLease::parameter(std::string_view name) const { return parameter(find(name)); }
View GradientLease::gradient(std::string_view name) const { return gradient(find(name)); }
View GradientLease::gradient(int index) const {
  return core().parts().gradients.gradient(step(), index);
}
bool GradientLease::accumulates() const { return !step().first_gradient; }

/// Takes the next compute step for `unit`, or throws before anything is submitted.
int EngineCore::enter(UnitId unit, bool gradients) {
  Sealed& parts = usable(gradients ? "backward" : "forward");
  parts.progress.check_enter(unit, gradients);
  const int compute_step = parts.progress.compute_step();
  const ScheduleStep& step = parts.gathers.schedule().step(compute_step);
  const auto begin = [&] {
    parts.gathers.make_present(step);
    if (gradients) parts.gradients.prepare(step);
  };
  if (parts.gathers.evaluating()) {
    begin();
  } else {
    costs_.expose(compute_step, begin);
  }
  parts.progress.begin_lease();
  return compute_step;
}

ParameterLease EngineCore::forward(UnitId unit) { return {*this, enter(unit, false)}; }
GradientLease EngineCore::backward(UnitId unit) { return {*this, enter(unit, true)}; }

void EngineCore::end_lease(int compute_step, bool unwinding) noexcept {
  Gathers& gathers = sealed_->gathers;
  StepProgress& progress = sealed_->progress;
  progress.end_lease();
  const ScheduleStep& step = gathers.schedule().step(compute_step);
  const auto end = [&] {
    if (writes_gradients(step.use.phase)) sealed_->gradients.finish(step, progress.micro_batch());
    if (step.release) gathers.release(step);
  };
  try {
    if (unwinding) {
      fail(
          "[rank {}] the lease of unit \"{}\" ended by an exception, so its micro-batch is "
          "incomplete; this engine cannot go on",
          world_.rank(), unit_at(step.use.unit.index).name);
    }
    if (gathers.evaluating()) {
      end();
    } else {
      costs_.expose(compute_step, end);
      const auto all = static_cast<int>(gathers.schedule().steps.size());
      reads_.advance(progress.micro_batch() * all + compute_step + 1,
                     progress.accumulation_steps() * all);
    }
    if (progress.advance()) gathers.begin_micro_batch();
  } catch (...) {
    progress.fail(std::current_exception());  // rethrown by the next call
  }
}

}  // namespace zero
