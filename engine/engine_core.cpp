// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

#include <set>
#include <utility>

#include "base/error.h"
#include "base/sign_of_life.h"

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
