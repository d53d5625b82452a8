// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/checked_math.h"
#include "engine/uncounted.h"

namespace zero {

EngineCore::EngineCore(std::unique_ptr<CountedMesh> mesh, Device& device, EngineOptions options)
    : mesh_(std::move(mesh)),
      world_(mesh_->world()),
      shards_(mesh_->axis(Axis::shard)),
      device_(device),
      options_(std::move(options)),
      gradient_dtype_(options_.gradient.value_or(options_.compute)),
      optimizer_(make_optimizer(options_.optimizer, device)) {
  validate(options_);
}

/// Work in flight uses the buffers: let it end before they go. Errors of dropped work are of no
/// interest any more.
EngineCore::~EngineCore() {
  try {
    synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

void EngineCore::check_sealed(std::string_view call) const {
  ZERO_CHECK(sealed_, "[rank {}] {}: the engine is not sealed; call seal() first", world_.rank(),
             call);
}

UnitId EngineCore::add_unit(std::string name, std::vector<ParameterSpec> parameters) {
  ZERO_CHECK(!sealed_, "add_unit({}): the engine is sealed; register all units before seal()",
             name);
  ZERO_CHECK(!name.empty(), "add_unit: a unit needs a name");
  Unit unit;
  unit.name = std::move(name);
  std::set<std::string> names;
  for (const Unit& other : units_) {
    ZERO_CHECK(other.name != unit.name, "add_unit({}): a unit of that name exists", unit.name);
    names.insert(other.full_names.begin(), other.full_names.end());
  }
  for (const ParameterSpec& spec : parameters) {
    ZERO_CHECK(!spec.name.empty(), "add_unit({}): a parameter needs a name", unit.name);
    unit.full_names.push_back(spec.full_name.empty() ? unit.name + "." + spec.name
                                                     : spec.full_name);
    ZERO_CHECK(names.insert(unit.full_names.back()).second,
               "add_unit({}): parameter \"{}\" is registered twice", unit.name,
               unit.full_names.back());
    static_cast<void>(spec.count());  // throws on a shape that cannot be
    if (!spec.slice) continue;
    spec.slice->check(unit.full_names.back());
    ZERO_CHECK(mesh_->mesh().size(Axis::tensor) > 1 || spec.count() == spec.logical_count(),
               "add_unit({}): parameter \"{}\" is a slice [{}] of [{}], but the mesh has one rank "
               "on its tensor axis; expected all of it",
               unit.name, unit.full_names.back(), fmt::join(spec.shape, ", "),
               fmt::join(spec.slice->shape, ", "));
    ZERO_CHECK(spec.shape == spec.slice->local_shape(),
               "add_unit({}): parameter \"{}\" has shape [{}], but its slice of [{}] is [{}]",
               unit.name, unit.full_names.back(), fmt::join(spec.shape, ", "),
               fmt::join(spec.slice->shape, ", "), fmt::join(spec.slice->local_shape(), ", "));
  }
  unit.specs = std::move(parameters);
  units_.push_back(std::move(unit));
  return {static_cast<int>(units_.size()) - 1};
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

void EngineCore::seal(SealOptions options) {
  ZERO_CHECK(!sealed_, "seal: the engine is sealed already");
  ZERO_CHECK(!units_.empty(), "seal: no unit is registered");
  ZERO_CHECK(options.accumulation_steps >= 1, "seal: accumulation_steps is {}, expected at least 1",
             options.accumulation_steps);
  accumulation_steps_ = options.accumulation_steps;
  for (Unit& unit : units_) {
    unit.lay_out(shards_.size(), options_.limits.persistence_threshold);
    asked_.emplace_back(unit.specs.size(), 0);
  }
  const std::vector<UnitUse> uses = declared_uses(options);
  check_uses(uses);
  const EngineResources resources{shards_,
                                  device_,
                                  options_,
                                  gradient_dtype_,
                                  optimizer_->moments(),
                                  accumulation_steps_,
                                  mesh_->axis(Axis::replicate)};
  sharding_ = make_sharding(resources);
  reducer_ = std::make_unique<GradientReducer>(resources, *sharding_, waits_);
  make_schedules(uses);
  check_agreement();
  for (Unit& unit : units_) {
    for (Segment& segment : unit.segments) sharding_->allocate(segment, unit.name);
    plan_updates(unit);
    if (Segment* segment = unit.trainable(); segment != nullptr) {
      segment->uncounted =
          uncounted_elements(unit, *segment, {shards_.rank(), mesh_->mesh().index(Axis::tensor)});
    }
  }
  reducer_->allocate(units_);
  allocate_windows();
  sums_ = device_.allocate_host(2 * ExactSum::kLimbs, DType::i64, MemoryClass::communication,
                                "norm and loss");
  sums_twin_ = DeviceTwin(device_, sums_.view().count(), DType::i64, MemoryClass::communication,
                          "norm and loss, to be summed");
  pieces_ = HostPieces(device_);
  sealed_ = true;
  initialise_values();
  for (const int unit : order_) publish(units_[static_cast<std::size_t>(unit)], Kind::frozen);
  mesh_->clear();  // what was sent so far belongs to no step
  world_.set_step(1);
  for (const int unit : order_) publish(units_[static_cast<std::size_t>(unit)], Kind::trainable);
  Renewal renewal;
  for (const int unit : order_) issue_begin(unit, renewal);
}

/// Every rank of a host finds the same in a parameter window: a gather meets before it, when all
/// have released what was there, and behind it. Poisoned windows are each rank's own.
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
  for (std::size_t i = 0; i < units_.size(); ++i) {
    UnitSize size;
    for (const Segment& segment : units_[i].segments)
      size.gathered_elements += sharding_->window_elements(segment);
    size.gathered_bytes = size.gathered_elements * size_of(options_.compute);
    const Segment* trainable = units_[i].trainable();
    const bool shared = shared_[i] != 0;
    if (trainable != nullptr && !sharding_->direct_gradients(shared)) {
      size.gradient_elements = trainable->layout.padded();
      size.gradient_bytes = size.gradient_elements * size_of(reducer_->window_dtype(shared));
    }
    input.units.push_back(size);
  }
  return input;
}

void EngineCore::make_schedules(const std::vector<UnitUse>& uses) {
  std::vector<int> backward_uses(units_.size(), 0);
  std::vector<UnitUse> forward_uses;
  for (const UnitUse& use : uses) {
    if (std::find(order_.begin(), order_.end(), use.unit) == order_.end())
      order_.push_back(use.unit);
    if (use.phase != Phase::forward) ++backward_uses[static_cast<std::size_t>(use.unit)];
    if (use.phase != Phase::backward)
      forward_uses.push_back({use.unit, Phase::forward, use.needs_parameters});
  }
  for (const int count : backward_uses) shared_.push_back(count > 1 ? 1 : 0);
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    if (std::find(order_.begin(), order_.end(), unit) == order_.end()) order_.push_back(unit);
  }
  training_.schedule = make_schedule(schedule_input(uses));
  evaluation_.schedule = make_schedule(schedule_input(forward_uses));
  exposed_.assign(uses.size(), 0.0);
  rewritable_.resize(units_.size());
  for (Drive* drive : {&training_, &evaluation_}) {
    drive->passes.resize(drive->schedule.steps.size());
  }
}

/// Neighbours in the layout with equal settings are updated in one call; padding between them stays
/// zero.
void EngineCore::plan_updates(Unit& unit) const {
  Segment* segment = unit.trainable();
  if (segment == nullptr) return;
  std::vector<std::pair<std::int64_t, GroupSettings>>
      starts;  // flat begin of each parameter, in layout order
  for (const Placement& placement : segment->layout.placements()) {
    const auto parameter =
        static_cast<std::size_t>(segment->parameters[static_cast<std::size_t>(placement.index)]);
    starts.emplace_back(placement.begin, settings_for(options_.groups, unit.full_names[parameter],
                                                      options_.optimizer.weight_decay));
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::int64_t low = segment->own_begin;
  const std::int64_t high = low + segment->master.count();
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::int64_t end = i + 1 < starts.size() ? starts[i + 1].first : segment->layout.padded();
    const std::int64_t begin = std::clamp(starts[i].first, low, high);
    const std::int64_t stop = std::clamp(end, low, high);
    if (begin == stop) continue;
    const GroupSettings& settings = starts[i].second;
    std::vector<UpdateRun>& runs = segment->runs;
    if (!runs.empty() && runs.back().learning_rate_scale == settings.learning_rate_scale &&
        runs.back().weight_decay == settings.weight_decay) {
      runs.back().count = stop - low - runs.back().begin;
    } else {
      runs.push_back(
          {begin - low, stop - begin, settings.learning_rate_scale, settings.weight_decay});
    }
  }
}

void EngineCore::initialise_values() {
  for (Unit& unit : units_) {
    for (Segment& segment : unit.segments) initialise_segment(unit, segment);
  }
}

/// Writes initial values of what this rank owns and rounds them to the compute copy. Frozen
/// parameters have no master values: theirs pass through scratch memory.
void EngineCore::initialise_segment(Unit& unit, Segment& segment) {
  constexpr std::int64_t kScratch = 1 << 16;
  const std::int64_t low = segment.own_begin;
  const Buffer scratch =
      segment.master.empty()
          ? device_.allocate(kScratch, DType::fp32, MemoryClass::staging, "initial values")
          : Buffer();
  const std::int64_t chunk = scratch.empty() ? std::max(kScratch, segment.own.count()) : kScratch;
  for (const Placement& placement : segment.layout.placements()) {
    const auto parameter =
        static_cast<std::size_t>(segment.parameters[static_cast<std::size_t>(placement.index)]);
    const std::int64_t end = std::min(placement.begin + placement.count, low + segment.own.count());
    for (std::int64_t begin = std::max(placement.begin, low); begin < end; begin += chunk) {
      const std::int64_t count = std::min(chunk, end - begin);
      const View values =
          scratch.empty() ? segment.master.slice(begin - low, count) : scratch.slice(0, count);
      device_.kernels().generate(
          device_.compute(), values,
          [first = begin - placement.begin, &name = unit.full_names[parameter],
           seed = options_.seed,
           &spec = unit.specs[parameter]](std::int64_t at, std::span<float> out) {
            initialise(spec, seed, name, first + at, out);
          });
      const View copy = segment.own.slice(begin - low, count);
      if (copy.data() != values.data()) device_.kernels().convert(device_.compute(), values, copy);
    }
  }
  if (!scratch.empty()) device_.compute().synchronize();
}

const Schedule& EngineCore::schedule() const {
  check_sealed("schedule");
  return training_.schedule;
}

namespace {

/// What of a parameter is cut over the shard axis, as its storage shows.
std::string cut_states(const Unit& unit, int index) {
  const Segment& segment = unit.segment_of(index);
  const FlatLayout& layout = segment.layout;
  std::vector<std::string_view> cut;
  if (segment.trainable && segment.master.count() < layout.padded()) cut.emplace_back("states");
  if (segment.trainable && segment.gradient.count() < layout.padded())
    cut.emplace_back("gradients");
  const bool kept = layout.tail() > 0 && unit.placement(index).begin >= layout.tail_begin();
  if (segment.full.empty() && !kept) cut.emplace_back("parameters");
  return fmt::format("{}", fmt::join(cut, ", "));
}

}  // namespace

std::vector<ParameterOwnership> EngineCore::ownership() const {
  check_sealed("ownership");
  const MeshShape& mesh = mesh_->mesh().shape();
  const auto copies = [](int ranks) {
    return ranks == 1 ? std::string("1 rank") : fmt::format("{} copies", ranks);
  };
  std::vector<ParameterOwnership> list;
  for (const Unit& unit : units_) {
    for (std::size_t i = 0; i < unit.specs.size(); ++i) {
      const ParameterSpec& spec = unit.specs[i];
      ParameterOwnership own{unit.full_names[i],     spec.logical_shape(), spec.shape,
                             copies(mesh.replicate), copies(mesh.shard),   copies(mesh.tensor)};
      const std::string cut = cut_states(unit, static_cast<int>(i));
      if (mesh.shard > 1 && !cut.empty()) own.shard = fmt::format("{} over {}", cut, mesh.shard);
      if (spec.slice) {
        own.tensor = fmt::format("along {} over {}{}", spec.slice->dimension, mesh.tensor,
                                 shared_ranges_[list.size()].empty() ? "" : ", some in copies");
      }
      list.push_back(std::move(own));
    }
  }
  return list;
}

std::vector<std::string> EngineCore::unit_names() const {
  std::vector<std::string> names;
  for (const Unit& unit : units_) names.push_back(unit.name);
  return names;
}

}  // namespace zero
