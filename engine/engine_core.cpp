// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

#include <exception>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/sign_of_life.h"
#include "engine/lease.h"

namespace zero {

EngineCore::EngineCore(std::unique_ptr<CountedMesh> mesh, Device& device, EngineOptions options)
    : mesh_(std::move(mesh)),
      world_(mesh_->world()),
      device_(device),
      options_(std::move(options)),
      optimizer_(make_optimizer(options_.optimizer, device)),
      graphs_(device,
              options_.checked ? CapturedGraph::Check::always : CapturedGraph::Check::at_first),
      reads_(device, waits_),
      costs_(*mesh_, device, waits_) {
  validate(options_);
  for (Tier* tier : {&options_.tiers.optimizer, &options_.tiers.parameters}) {
    if (device_.memory() == MemorySpace::host && *tier == Tier::host) *tier = Tier::device;
  }
  for (Communicator* of : {&world_, &mesh_->axis(Axis::replicate), &mesh_->axis(Axis::shard),
                           &mesh_->axis(Axis::tensor), &mesh_->data(), &mesh_->replica_group()})
    claims_.emplace_back(*of, device_, "Engine");
}

/// Errors of dropped work have no reader.
void EngineCore::drain() noexcept {
  try {
    reads_.drain();
    synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

EngineCore::Sealed& EngineCore::sealed(std::string_view call) {
  ZERO_CHECK(sealed_, "[rank {}] {}: the engine is not sealed; call seal() first", world_.rank(),
             call);
  return *sealed_;
}

EngineCore::Sealed& EngineCore::usable(std::string_view call) {
  sealed(call).progress.check_usable();
  return *sealed_;
}

UnitId EngineCore::add_unit(std::string name, std::vector<ParameterSpec> parameters) {
  ZERO_CHECK(!sealed_, "add_unit({}): the engine is sealed; register all units before seal()",
             name);
  give_sign_of_life();  // a plan of a large model is long computing
  Unit added = Unit::make(std::move(name), std::move(parameters), mesh_->mesh().size(Axis::tensor));
  std::set<std::string_view> names;
  for (const Unit& other : units_) {
    ZERO_CHECK(other.name != added.name, "add_unit({}): a unit of that name exists", added.name);
    names.insert(other.full_names.begin(), other.full_names.end());
  }
  for (const std::string& parameter : added.full_names) {
    ZERO_CHECK(names.insert(parameter).second, "add_unit({}): parameter \"{}\" is registered twice",
               added.name, parameter);
  }
  units_.push_back(std::move(added));
  return {static_cast<int>(units_.size()) - 1};
}

void EngineCore::require_same(const std::string& key, const std::string& value) {
  ZERO_CHECK(!sealed_, "require_same({}): the engine is sealed; say it before seal()", key);
  same_ += fmt::format("{}: {}\n", key, value);
}

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

void EngineCore::repeat(int compute_step, std::size_t nth, const Stream::Work& body) {
  if (!options_.graphs || !device_.compute().captures()) return body();
  const Gathers& gathers = sealed_->gathers;
  const Use& use = gathers.schedule().step(compute_step).use;
  graphs_.repeat({gathers.evaluating(), compute_step, nth}, unit_at(use.unit.index), use.phase,
                 body);
}

void EngineCore::discard_graphs() {
  if (sealed_) sealed_->progress.check_between_leases("discard_graphs");
  graphs_.clear();
}

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

void EngineCore::synchronize() {
  device_.compute().synchronize();
  device_.communication().synchronize();
}

/// Windows of the two schedules share memory, so both streams finish before the other schedule
/// takes over. At some stages an evaluation has no collective of its own: in the barrier a rank
/// that evaluates alone is found by name at every stage. Traffic of the evaluation, and of the
/// gathers repeated because of it, belongs to no step.
void EngineCore::set_evaluation(bool on) {
  Sealed& parts = usable(on ? "begin_evaluation" : "end_evaluation");
  parts.progress.check_evaluation(on);
  if (on) costs_.begin_evaluation();
  if (on) world_.barrier(device_.communication(), {"begin_evaluation", {}});
  synchronize();
  if (on) settle_states("begin_evaluation");
  if (!on && options_.tiers.parameters == Tier::file) settle_states("end_evaluation");
  parts.gathers.set_evaluating(on);
  parts.gathers.begin_micro_batch();
  if (!on) costs_.end_evaluation();
}

}  // namespace zero
