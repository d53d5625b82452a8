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
      shards_(mesh_->axis(Axis::shard)),
      device_(device),
      options_(std::move(options)),
      gradient_dtype_(options_.gradient.value_or(options_.compute)),
      optimizer_(make_optimizer(options_.optimizer, device)),
      graphs_(device,
              options_.checked ? CapturedGraph::Check::always : CapturedGraph::Check::at_first),
      reads_(device, waits_),
      costs_(*mesh_, device) {
  validate(options_);
}

/// Waits for work in flight, which uses the buffers. Errors of dropped work have no reader.
EngineCore::~EngineCore() {
  try {
    reads_.drain();
    synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

void EngineCore::check_sealed(std::string_view call) const {
  ZERO_CHECK(state_, "[rank {}] {}: the engine is not sealed; call seal() first", world_.rank(),
             call);
}

UnitId EngineCore::add_unit(std::string name, std::vector<ParameterSpec> parameters) {
  ZERO_CHECK(!state_, "add_unit({}): the engine is sealed; register all units before seal()", name);
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
  ZERO_CHECK(!state_, "require_same({}): the engine is sealed; say it before seal()", key);
  same_ += fmt::format("{}: {}\n", key, value);
}

EngineResources EngineCore::resources() const {
  return {shards_,
          device_,
          options_,
          gradient_dtype_,
          optimizer_->moments(),
          accumulation_steps_,
          mesh_->axis(Axis::replicate)};
}

void EngineCore::seal(const SealOptions& options) {
  ZERO_CHECK(!state_, "seal: the engine is sealed already");
  ZERO_CHECK(!units_.empty(), "seal: no unit is registered");
  ZERO_CHECK(options.accumulation_steps >= 1, "seal: accumulation_steps is {}, expected at least 1",
             options.accumulation_steps);
  accumulation_steps_ = options.accumulation_steps;
  for (Unit& unit : units_) unit.lay_out(shards_.size(), options_.limits.persistence_threshold);
  const std::vector<UnitUse> uses = declared_uses(options, units_);
  order_ = order_of_first_use(uses, units_.size());
  mark_summed_uses(uses, units_);
  sharding_ = make_sharding(resources());
  reducer_ = std::make_unique<GradientReducer>(resources(), *sharding_, waits_);
  Schedules schedules = make_schedules(uses, units_, *sharding_, *reducer_, options_);
  check_agreement(schedules.training);
  allocate(std::move(schedules));
  state_.emplace(ModelState::Context{units_, *mesh_, device_, pieces_, optimizer_->moments()});
  for (Unit& unit : units_) unit.initialise(device_, options_.seed);
  publish_all(Kind::frozen);
  costs_.begin(uses.size());  // traffic so far belongs to no step
  world_.set_step(1);
  publish_all(Kind::trainable);
  gathers_->begin_micro_batch();
}

void EngineCore::check_agreement(const Schedule& training) {
  const std::string text =
      seal_agreement(options_, accumulation_steps_, units_, training, device_) + same_;
  require_agreement(world_, device_, "seal", text, mesh_->mesh().size(Axis::tensor));
  // A plan has no other ranks whose slices could be compared.
  if (device_.has_memory()) find_shared_ranges(mesh_->axis(Axis::tensor), device_, units_);
}

void EngineCore::allocate(Schedules schedules) {
  const int tensor = mesh_->mesh().index(Axis::tensor);
  for (Unit& unit : units_) {
    for (Segment& segment : unit.segments) sharding_->allocate(segment, unit.name);
    unit.plan_updates(options_.groups, options_.optimizer.weight_decay);
    find_uncounted(unit, shards_.rank(), tensor);
  }
  reducer_->allocate(units_);
  gathers_ =
      std::make_unique<Gathers>(resources(), *sharding_, waits_, units_, std::move(schedules));
  gradients_ = std::make_unique<LeasedGradients>(resources(), *gathers_, *reducer_, waits_, units_);
  sums_ = std::make_unique<StepSums>(*mesh_, device_, waits_);
  pieces_ = HostPieces(device_);
}

}  // namespace zero
