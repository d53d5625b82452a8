// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/lease.h"

#include <exception>
#include <utility>

#include "engine/engine_core.h"

namespace zero {

Lease::Lease(EngineCore& core, int compute_step)
    : core_(&core),
      step_(&core.parts().gathers.schedule().step(compute_step)),
      compute_step_(compute_step),
      unwinding_(std::uncaught_exceptions()) {}

Lease::Lease(Lease&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      step_(other.step_),
      compute_step_(other.compute_step_),
      unwinding_(other.unwinding_),
      repeated_(other.repeated_) {}

Lease::~Lease() {
  if (core_ != nullptr) core_->end_lease(compute_step_, std::uncaught_exceptions() > unwinding_);
}

void Lease::repeat(const std::function<void()>& body) {
  core_->repeat(compute_step_, repeated_++, body);
}

int Lease::find(std::string_view parameter) const {
  return core_->unit_at(step_->use.unit).find(parameter);
}
View Lease::at(int index) const { return core_->parts().gathers.parameter(*step_, index); }

View ParameterLease::operator[](std::string_view parameter) const { return at(find(parameter)); }

View GradientLease::parameter(std::string_view name) const { return parameter(find(name)); }
View GradientLease::gradient(std::string_view name) const { return gradient(find(name)); }
View GradientLease::gradient(int index) const {
  return core_->parts().gradients.gradient(*step_, index);
}
bool GradientLease::accumulates() const { return !step_->first_gradient; }

}  // namespace zero
