// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

#include <algorithm>
#include <set>

#include "collectives/agreement.h"
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
              options_.checked ? CapturedGraph::Check::always : CapturedGraph::Check::at_first) {
  validate(options_);
}

/// Waits for work in flight, which uses the buffers. Errors of dropped work have no reader.
EngineCore::~EngineCore() {
  try {
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

std::vector<UnitUse> EngineCore::declared_uses(const SealOptions& options) const {
  std::vector<UnitUse> uses;
  if (options.order.empty()) {
    const int count = static_cast<int>(units_.size());
    for (int unit = 0; unit < count; ++unit) uses.push_back({unit, Phase::forward});
    for (int unit = count - 1; unit >= 0; --unit) uses.push_back({unit, Phase::backward});
  }
  for (const Use& use : options.order) {
    ZERO_CHECK(use.unit.index >= 0 && use.unit.index < static_cast<int>(units_.size()),
               "seal: the order uses unit {}, but {} units are registered", use.unit.index,
               units_.size());
    uses.push_back({use.unit.index, use.phase, use.needs_parameters});
  }
  return uses;
}

void EngineCore::check_uses(const std::vector<UnitUse>& uses) const {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const bool backward = std::any_of(uses.begin(), uses.end(), [&](const UnitUse& use) {
      return use.unit == static_cast<int>(i) && use.phase != Phase::forward;
    });
    ZERO_CHECK(backward || units_[i].trainable() == nullptr,
               "seal: unit \"{}\" has trainable parameters but no backward use in the order; "
               "declare one or freeze them",
               units_[i].name);
  }
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
  const std::vector<UnitUse> uses = declared_uses(options);
  check_uses(uses);
  sharding_ = make_sharding(resources());
  reducer_ = std::make_unique<GradientReducer>(resources(), *sharding_, waits_);
  order_units(uses);
  make_schedules(uses);
  check_agreement();
  allocate();
  state_.emplace(ModelState::Place{units_, *mesh_, device_, pieces_, optimizer_->moments()});
  for (Unit& unit : units_) unit.initialise(device_, options_.seed);
  for (const int index : order_) publish(unit_at(index), Kind::frozen);
  mesh_->clear();  // traffic so far belongs to no step
  world_.set_step(1);
  for (const int index : order_) publish(unit_at(index), Kind::trainable);
  Renewal renewal;
  for (const int index : order_) issue_begin(index, renewal);
}

void EngineCore::check_agreement() {
  const std::string text =
      seal_agreement(options_, accumulation_steps_, units_, training_.schedule, device_) + same_;
  require_agreement(world_, device_, "seal", text, mesh_->mesh().size(Axis::tensor));
  // A plan has no other ranks whose slices could be compared.
  if (device_.has_memory()) find_shared_ranges(mesh_->axis(Axis::tensor), device_, units_);
}

void EngineCore::allocate() {
  const int tensor = mesh_->mesh().index(Axis::tensor);
  for (Unit& unit : units_) {
    for (Segment& segment : unit.segments) sharding_->allocate(segment, unit.name);
    unit.plan_updates(options_.groups, options_.optimizer.weight_decay);
    find_uncounted(unit, shards_.rank(), tensor);
  }
  reducer_->allocate(units_);
  allocate_windows();
  sums_ = device_.allocate_host(2 * ExactSum::kLimbs, DType::i64, MemoryClass::communication,
                                "norm and loss");
  sums_twin_ = DeviceTwin(device_, sums_.view().count(), DType::i64, MemoryClass::communication,
                          "norm and loss, to be summed");
  pieces_ = HostPieces(device_);
}

/// Parameter windows, whose contents are equal on all ranks, may be memory that the ranks of a host
/// share: a gather starts once all ranks have released the window, and ends once all have written.
/// Checked mode poisons windows, so there each rank has its own.
void EngineCore::allocate_windows() {
  const std::int64_t parameters =
      std::max(training_.schedule.gradients_begin, evaluation_.schedule.gradients_begin);
  const std::int64_t gradients =
      training_.schedule.arena_bytes - training_.schedule.gradients_begin;
  const auto allocate = [&](std::int64_t bytes, std::string_view label) {
    return shards_.allocate(device_, bytes, DType::u8, MemoryClass::gathered, label);
  };
  arena_ = options_.checked ? allocate(parameters, "windows")
                            : shards_
                                  .allocate_shared(device_, parameters, DType::u8,
                                                   MemoryClass::gathered, "windows")
                                  .buffer;
  gradient_arena_ = allocate(std::max<std::int64_t>(gradients, 0), "gradient windows");
  for (Drive* drive : {&training_, &evaluation_}) {
    drive->arena = std::make_unique<WindowArena>(drive->schedule, arena_.view(), waits_,
                                                 gradient_arena_.view());
  }
}

ScheduleInput EngineCore::schedule_input(const std::vector<UnitUse>& uses) const {
  ScheduleInput input{uses, {}, options_.limits};
  for (const Unit& unit : units_) {
    UnitSize size;
    for (const Segment& segment : unit.segments)
      size.gathered_elements += sharding_->window_elements(segment);
    size.gathered_bytes = size.gathered_elements * size_of(options_.compute);
    const Segment* trainable = unit.trainable();
    if (trainable != nullptr && !sharding_->direct_gradients(unit)) {
      size.gradient_elements = trainable->layout.padded();
      size.gradient_bytes = size.gradient_elements * size_of(reducer_->window_dtype(unit));
    }
    input.units.push_back(size);
  }
  return input;
}

/// Units in the order of their first use; unused units come last.
void EngineCore::order_units(const std::vector<UnitUse>& uses) {
  const auto add = [&](int unit) {
    if (std::ranges::find(order_, unit) == order_.end()) order_.push_back(unit);
  };
  for (const UnitUse& use : uses) add(use.unit);
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) add(unit);
}

void EngineCore::make_schedules(const std::vector<UnitUse>& uses) {
  std::vector<int> backward_uses(units_.size(), 0);
  std::vector<UnitUse> forward_uses;
  for (const UnitUse& use : uses) {
    if (use.phase != Phase::forward)
      unit_at(use.unit).sums_uses = ++backward_uses[static_cast<std::size_t>(use.unit)] > 1;
    if (use.phase != Phase::backward)
      forward_uses.push_back({use.unit, Phase::forward, use.needs_parameters});
  }
  training_.schedule = make_schedule(schedule_input(uses));
  evaluation_.schedule = make_schedule(schedule_input(forward_uses));
  exposed_.assign(uses.size(), 0.0);
}

const Schedule& EngineCore::schedule() const {
  check_sealed("schedule");
  return training_.schedule;
}

}  // namespace zero
