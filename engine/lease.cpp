// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/lease.h"

#include <exception>
#include <utility>

#include "engine/engine_core.h"

namespace zero {

Lease::Lease(EngineCore& core, int step)
    : core_(&core), step_(step), unwinding_(std::uncaught_exceptions()) {}

Lease::Lease(Lease&& other) noexcept
    : core_(std::exchange(other.core_, nullptr)),
      step_(other.step_),
      unwinding_(other.unwinding_),
      repeated_(other.repeated_) {}

Lease::~Lease() {
  if (core_ != nullptr) core_->end_lease(step_, std::uncaught_exceptions() > unwinding_);
}

void Lease::repeat(const std::function<void()>& body) { core_->repeat(step_, repeated_++, body); }

View ParameterLease::operator[](std::string_view parameter) const {
  return at(core_->unit_of(step_).find(parameter));
}
View ParameterLease::at(int index) const { return core_->parameter(step_, index); }

View GradientLease::parameter(std::string_view name) const {
  return parameter(core_->unit_of(step_).find(name));
}
View GradientLease::parameter(int index) const { return core_->parameter(step_, index); }
View GradientLease::gradient(std::string_view name) const {
  return gradient(core_->unit_of(step_).find(name));
}
View GradientLease::gradient(int index) const { return core_->gradient(step_, index); }
bool GradientLease::accumulates() const { return core_->accumulates(step_); }

}  // namespace zero
