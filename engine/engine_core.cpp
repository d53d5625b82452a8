// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

#include <algorithm>
#include <set>
#include <utility>

#include "collectives/agreement.h"
#include "engine/declared_order.h"
#include "engine/seal_agreement.h"
#include "engine/tensor_copies.h"

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
      costs_(*mesh_, device) {
  validate(options_);
  for (Communicator* of : {&world_, &mesh_->axis(Axis::replicate), &mesh_->axis(Axis::shard),
                           &mesh_->axis(Axis::tensor), &mesh_->data(), &mesh_->replica_group()})
    claims_.emplace_back(*of, device_, "Engine");
}

/// Waits for work in flight, which uses the buffers. Errors of dropped work have no reader.
EngineCore::~EngineCore() {
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

void EngineCore::seal(const SealOptions& options) {
  ZERO_CHECK(!sealed_, "seal: the engine is sealed already");
  ZERO_CHECK(!units_.empty(), "seal: no unit is registered");
  ZERO_CHECK(options.accumulation_steps >= 1, "seal: accumulation_steps is {}, expected at least 1",
             options.accumulation_steps);
  for (Unit& unit : units_) {
    unit.lay_out(mesh_->axis(Axis::shard).size(), options_.limits.persistence_threshold,
                 options_.optimizer.moments);
  }
  const std::vector<Use> uses = declared_uses(options, units_);
  mark_summed_uses(uses, units_);
  Sealed& parts = sealed_.emplace(*this, uses, options.accumulation_steps);
  try {
    for (Unit& unit : units_) unit.initialise(device_, options_.seed);
    publish_all(Gathers::Kind::frozen);
    costs_.begin(uses.size());  // traffic so far belongs to no step
    world_.set_step(1);
    publish_all(Gathers::Kind::trainable);
    parts.gathers.begin_micro_batch();
  } catch (...) {
    parts.progress.fail(std::current_exception());
    throw;
  }
}

void EngineCore::publish_all(Gathers::Kind kind) {
  for (const int index : sealed_->order) sealed_->gathers.publish(unit_at(index), kind);
}

/// The schedules, which all ranks have agreed on; allocates states and receive slices.
Schedules EngineCore::prepare(std::span<const Use> uses, const EngineResources& resources,
                              Sharding& sharding, GradientReducer& reducer) {
  Schedules schedules = make_schedules(uses, units_, sharding, reducer, options_);
  const std::string text =
      seal_agreement(options_, resources.accumulation_steps, units_, schedules.training, device_);
  require_agreement(world_, device_, "seal", text + same_, mesh_->mesh().size(Axis::tensor));
  // A plan has no other ranks whose slices could be compared.
  if (device_.has_memory()) {
    find_shared_ranges(mesh_->axis(Axis::tensor), device_, units_,
                       moment_block(options_.optimizer.moments));
  }
  for (Unit& unit : units_) {
    for (Segment& segment : unit.segments) sharding.allocate(segment, unit.name);
    unit.plan_updates(options_.groups, options_.optimizer);
    find_uncounted(unit, resources.shards.rank(), mesh_->mesh().index(Axis::tensor));
  }
  reducer.allocate(units_);
  return schedules;
}

EngineCore::Sealed::Sealed(EngineCore& core, std::span<const Use> uses, int accumulation_steps)
    : resources{core.mesh_->axis(Axis::shard),
                core.device_,
                core.options_,
                core.options_.gradient.value_or(core.options_.compute),
                core.optimizer_->moments(),
                accumulation_steps,
                core.mesh_->axis(Axis::replicate)},
      order(order_of_first_use(uses, core.units_.size())),
      gradient_order(order_of_gradients(uses)),
      sharding(make_sharding(resources)),
      reducer(resources, *sharding, core.waits_),
      gathers(resources, *sharding, core.waits_, core.units_,
              core.prepare(uses, resources, *sharding, reducer)),
      gradients(resources, gathers, reducer, core.waits_, core.units_),
      sums(*core.mesh_, core.device_, core.waits_),
      host_access(core.device_),
      coded(core.device_, host_access, *core.optimizer_),
      state({core.units_, *core.mesh_, core.device_, host_access, coded, resources.moments}),
      progress(core.world_.rank(), accumulation_steps, gathers, core.units_) {}

}  // namespace zero
