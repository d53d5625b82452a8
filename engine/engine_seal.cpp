// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sign_of_life.h"
#include "collectives/agreement.h"
#include "engine/engine_core.h"
#include "engine/sharding.h"
#include "engine/tensor_copies.h"
#include "engine/whole_units.h"

namespace zero {
namespace {

/// Every unit forward in registration order, then backward in reverse.
std::vector<Use> usual_uses(int units) {
  std::vector<Use> uses;
  for (int unit = 0; unit < units; ++unit) uses.push_back({{unit}, Phase::forward});
  for (int unit = units - 1; unit >= 0; --unit) uses.push_back({{unit}, Phase::backward});
  return uses;
}

ScheduleInput schedule_input(std::span<const Unit> units, const Sharding& sharding,
                             const GradientReducer& reducer, const EngineOptions& options) {
  ScheduleInput input{{}, {}, options.limits};
  for (const Unit& unit : units) {
    UnitSize size;
    for (const Segment& segment : unit.segments)
      size.gathered_elements += sharding.window_elements(segment);
    size.gathered_bytes = size.gathered_elements * size_of(options.compute);
    const Segment* trainable = unit.trainable();
    if (trainable != nullptr && !sharding.direct_gradients(unit)) {
      size.gradient_elements = trainable->layout.padded();
      size.gradient_bytes = size.gradient_elements * size_of(reducer.window_dtype(unit));
    }
    input.units.push_back(size);
  }
  return input;
}

/// The uses of one micro-batch. Throws zero::Error if `options` use an unknown unit, or use a unit
/// with trainable parameters in no backward.
std::vector<Use> declared_uses(const SealOptions& options, std::span<const Unit> units) {
  const auto count = static_cast<int>(units.size());
  std::vector<Use> uses = options.order.empty() ? usual_uses(count) : options.order;
  for (const Use& use : uses) {
    ZERO_CHECK(use.unit.index >= 0 && use.unit.index < count,
               "seal: the order uses unit {}, but {} units are registered", use.unit.index, count);
  }
  for (int unit = 0; unit < count; ++unit) {
    const bool backward = std::ranges::any_of(uses, [&](const Use& use) {
      return use.unit.index == unit && writes_gradients(use.phase);
    });
    const Unit& of = units[static_cast<std::size_t>(unit)];
    ZERO_CHECK(backward || of.trainable() == nullptr,
               "seal: unit \"{}\" has trainable parameters but no backward use in the order; "
               "declare one or freeze them",
               of.name);
  }
  return uses;
}

/// Indices of all units in the order of their first use, unused ones last: the order of updates.
std::vector<int> order_of_first_use(std::span<const Use> uses, std::size_t units) {
  std::vector<int> order;
  const auto add = [&](int unit) {
    if (std::ranges::find(order, unit) == order.end()) order.push_back(unit);
  };
  for (const Use& use : uses) add(use.unit.index);
  for (std::size_t unit = 0; unit < units; ++unit) add(static_cast<int>(unit));
  return order;
}

/// Indices of the units with a backward use in the order in which a micro-batch's backward
/// completes their gradients: that of their last backward use.
std::vector<int> order_of_gradients(std::span<const Use> uses) {
  std::vector<int> order;
  for (const Use& use : uses) {
    if (!writes_gradients(use.phase)) continue;
    std::erase(order, use.unit.index);
    order.push_back(use.unit.index);
  }
  return order;
}

/// Sets Unit::sums_uses.
void mark_summed_uses(std::span<const Use> uses, std::span<Unit> units) {
  std::vector<int> backward_uses(units.size(), 0);
  for (const Use& use : uses) {
    const auto unit = static_cast<std::size_t>(use.unit.index);
    if (writes_gradients(use.phase)) units[unit].sums_uses = ++backward_uses[unit] > 1;
  }
}

ScheduleInputs schedule_inputs(std::span<const Use> uses, std::span<const Unit> units,
                               const Sharding& sharding, const GradientReducer& reducer,
                               const EngineOptions& options) {
  ScheduleInput training = schedule_input(units, sharding, reducer, options);
  training.uses.assign(uses.begin(), uses.end());
  return with_evaluation(std::move(training));
}

std::vector<KeptBytes> kept_bytes(std::span<const Unit> units, const Sharding& sharding,
                                  DType compute) {
  std::vector<KeptBytes> kept(units.size());
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (const Segment& segment : units[unit].segments) {
      kept[unit].sharded += sharding.kept_elements(segment) * size_of(compute);
      kept[unit].whole += segment.layout.padded() * size_of(compute);
    }
  }
  return kept;
}

/// The ranges of a slice.
std::string slice_text(const TensorSlice& slice) {
  std::string text;
  for (const TensorSlice::Range& range : slice.ranges) {
    text += fmt::format("{}[{}, {}) copy {}", text.empty() ? "" : ", ", range.begin,
                        range.begin + range.count, range.copy);
  }
  return text;
}

/// The properties that ranks must have in common at seal(), as lines for require_agreement(): all
/// ranks, or (slices and the schedule that follows from them) those of one tensor index.
std::string seal_agreement(const EngineOptions& options, int accumulation_steps,
                           std::span<const Unit> units, const Schedule& schedule,
                           const Device& device) {
  const ScheduleLimits& l = options.limits;
  const OptimizerConfig& o = options.optimizer;
  const TierOptions& t = options.tiers;
  std::string text;
  const auto line = [&text](std::string_view key, const auto& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("zero version", ZERO_VERSION);
  line("stage", options.stage);
  line("compute dtype", name_of(options.compute));
  line("gradient dtype", name_of(options.gradient.value_or(options.compute)));
  line("reduction", name_of(options.reduction));
  line("seed", options.seed);
  line("gradient_clipping", options.gradient_clipping);
  line("accumulation_steps", accumulation_steps);
  line("overlap", options.overlap);
  line("checked", options.checked);
  line("replica_check_every", options.replica_check_every);
  line("optimizer",
       fmt::format("{} beta1={} beta2={} epsilon={} weight_decay={} momentum={} moments={}",
                   name_of(o.kind), o.beta1, o.beta2, o.epsilon, o.weight_decay, o.momentum,
                   name_of(o.moments)));
  if (t.optimizer == Tier::host) {
    line("optimizer states in host memory",
         fmt::format("ratio={} in {} windows of {}", t.optimizer_ratio, t.windows.buffers,
                     t.windows.buffer_elements));
  }
  if (t.optimizer == Tier::file) {
    line("optimizer states in a file", fmt::format("ratio={}", t.optimizer_ratio));
  }
  if (t.parameters != Tier::device) {
    line(t.parameters == Tier::file ? "parameters in a file" : "parameters in host memory",
         fmt::format("but for {}, fetched through {} buffers, updated in {} windows of {}",
                     t.parameters_in_memory, t.fetch_buffers, t.windows.buffers,
                     t.windows.buffer_elements));
  }
  if (uses_file(t)) {
    line("windows of a file", fmt::format("buffers={} of {} requests of {}", t.windows.buffers,
                                          t.windows.buffer_elements, t.file.block_bytes));
  }
  for (const ParameterGroup& group : options.groups) {
    line("parameter group",
         fmt::format("{} scale={} weight_decay={}", group.pattern, group.learning_rate_scale,
                     group.weight_decay ? fmt::format("{}", *group.weight_decay) : "default"));
  }
  line("limits", fmt::format("prefetch={} live={} persistence={} reuse={} reduce_bucket={}",
                             limit_text(l.prefetch_elements), limit_text(l.live_elements),
                             limit_text(l.persistence_threshold), l.reuse_distance,
                             l.reduce_bucket_elements));
  for (const Unit& unit : units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      const ParameterSpec& spec = unit.spec(i);
      line(fmt::format("unit {} parameter {}", unit.name, i),
           fmt::format("{} [{}] init={}({},{}) {}{}", unit.full_name(i),
                       fmt::join(spec.logical_shape(), ", "), static_cast<int>(spec.init.kind),
                       spec.init.a, spec.init.b, spec.trainable ? "trainable" : "frozen",
                       spec.slice ? fmt::format(" sliced along {}", spec.slice->dimension) : ""));
      if (spec.slice)
        line(fmt::format("{}unit {} slice {}", kPerGroupMark, unit.name, i),
             slice_text(*spec.slice));
    }
  }
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Use& use = schedule.steps[i].use;
    line(fmt::format("{}use {} of the order", kPerGroupMark, i),
         fmt::format("{}({}){}", name_of(use.phase),
                     units[static_cast<std::size_t>(use.unit.index)].name,
                     use.needs_parameters ? "" : " without parameters"));
  }
  line(fmt::format("{}schedule", kPerGroupMark), fmt::format("{:016x}", schedule.hash()));
  line("kernels", device.bits());
  const PieceSizes pieces = device.piece_sizes();
  line("pieces", fmt::format("{} rows of logits, padded to {} columns, {} bytes received",
                             pieces.logit_rows, pieces.logit_columns, pieces.received_bytes));
  line("threads", device.threads());
  return text;
}

}  // namespace

void EngineCore::seal(const SealOptions& options) {
  ZERO_CHECK(!sealed_, "seal: the engine is sealed already");
  ZERO_CHECK(!units_.empty(), "seal: no unit is registered");
  ZERO_CHECK(options.accumulation_steps >= 1, "seal: accumulation_steps is {}, expected at least 1",
             options.accumulation_steps);
  for (Unit& unit : units_) {
    give_sign_of_life();
    unit.lay_out(mesh_->axis(Axis::shard).size(),
                 options_.limits.persistence_threshold.value_or(kSmallParameter),
                 options_.optimizer.moments);
  }
  const std::vector<Use> uses = declared_uses(options, units_);
  mark_summed_uses(uses, units_);
  Sealed& parts = sealed_.emplace(*this, uses, options.accumulation_steps);
  try {
    initialise(StateFields::masters, options.initialising);
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

/// The initial values of all units; with StateFields::all also of moments, which begin as zeros.
void EngineCore::initialise(StateFields written, const PassProgress& progress) {
  Kernels& kernels = device_.kernels();
  StateWindows& windows = sealed_->windows;
  std::int64_t all = 0;
  for (const Unit& unit : units_) {
    for (const Segment& segment : unit.segments) all += segment.extent().count;
  }
  std::int64_t done = 0;
  const auto add = [&](std::int64_t count) {
    done += count;
    if (progress && count > 0) progress(done, all);
  };
  for (const Unit& unit : units_) {
    unit.initialise_frozen(sealed_->access, device_, options_.seed);
    for (const Segment& segment : unit.segments) {
      if (!segment.trainable) add(segment.extent().count);
    }
  }
  sealed_->access.settle();
  windows.begin({.write = written});
  for (const int index : sealed_->order) {
    const Unit& unit = unit_at(index);
    while (windows.more(index)) {
      const PieceStates states = windows.next();
      for (std::size_t i = 0; written == StateFields::all && i < states.moments.size(); ++i) {
        kernels.zero(device_.compute(), states.moments[i]);
        kernels.zero(device_.compute(), states.scales[i]);
      }
      unit.initialise(*unit.trainable(), states.range.begin, states.master, states.copy, device_,
                      options_.seed);
      windows.changed();
      add(states.range.count);
    }
  }
}

void EngineCore::publish_all(Gathers::Kind kind) {
  for (const int index : sealed_->order) {
    if (kind == Gathers::Kind::frozen) refresh_frozen(unit_at(index));
    sealed_->gathers.publish(unit_at(index), kind);
  }
}

/// Copies this rank's small frozen parameters from shards that are away to the tails from which
/// they are published. Blocks the host if there are any; nothing may use the tails.
void EngineCore::refresh_frozen(const Unit& unit) {
  for (const Segment& segment : unit.segments) {
    const FlatRange small = segment.extent().within(segment.small());
    if (segment.trainable || !segment.shard_away || small.count == 0) continue;
    const View tail = segment.tail_of(small);
    sealed_->access.read(segment.own.slice(small.begin - segment.own_begin, small.count),
                         [&](std::int64_t begin, const View& values) {
                           device_.kernels().convert(device_.compute(), values,
                                                     tail.slice(begin, values.count()));
                           device_.compute().synchronize();
                         });
  }
}

/// The inputs of the schedules. If neither prefetch nor threshold is given, units that are cheaper
/// whole are laid out anew.
ScheduleInputs EngineCore::lay_out_units(std::span<const Use> uses, const Sharding& sharding,
                                         const GradientReducer& reducer) {
  ScheduleInputs inputs = schedule_inputs(uses, units_, sharding, reducer, options_);
  const ScheduleLimits& limits = options_.limits;
  if (limits.prefetch_elements || limits.persistence_threshold) return inputs;
  const std::vector<bool> whole =
      choose_whole_units(inputs, kept_bytes(units_, sharding, options_.compute));
  if (std::ranges::find(whole, true) == whole.end()) return inputs;
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!whole[unit]) continue;
    units_[unit].lay_out(mesh_->axis(Axis::shard).size(), std::numeric_limits<std::int64_t>::max(),
                         options_.optimizer.moments);
  }
  return schedule_inputs(uses, units_, sharding, reducer, options_);
}

/// The schedules, which all ranks have agreed on; allocates states and receive slices.
Schedules EngineCore::prepare(std::span<const Use> uses, const EngineResources& resources,
                              StateHome& home, Sharding& sharding, GradientReducer& reducer) {
  const ScheduleInputs inputs = lay_out_units(uses, sharding, reducer);
  Schedules schedules{make_schedule(inputs.training), make_schedule(inputs.evaluation)};
  const std::string text =
      seal_agreement(options_, resources.accumulation_steps, units_, schedules.training, device_);
  require_agreement(world_, device_, "seal", text + same_, mesh_->mesh().size(Axis::tensor));
  const std::int64_t block = moment_block(options_.optimizer.moments);
  if (device_.has_memory()) {
    find_shared_ranges(mesh_->axis(Axis::tensor), device_, units_, block);
  } else {  // a plan has no other ranks whose slices could be compared
    check_own_copies(units_, block);
  }
  const TierUnits away =
      units_away(units_, order_of_first_use(uses, units_.size()), sharding, options_.tiers);
  for (std::size_t i = 0; i < units_.size(); ++i) {
    Unit& unit = units_[i];
    for (Segment& segment : unit.segments) {
      sharding.allocate(segment, unit.name,
                        {.states = away.states[i] ? &home : nullptr,
                         .parameters = away.parameters[i] ? &home : nullptr});
    }
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
      home(core.device_, core.options_.tiers),
      sharding(make_sharding(resources)),
      reducer(resources, *sharding, core.waits_),
      gathers(resources, *sharding, core.waits_, core.units_,
              core.prepare(uses, resources, home, *sharding, reducer), home),
      gradients(resources, gathers, reducer, core.waits_, core.units_),
      sums(*core.mesh_, core.device_, core.waits_),
      windows(core.device_, core.waits_, core.units_, order, home, core.options_.tiers.windows),
      access(core.device_, home),
      coded(core.device_, access, *core.optimizer_),
      state({core.units_, *core.mesh_, core.device_, access, coded, resources.moments}),
      progress(core.world_.rank(), accumulation_steps, gathers, core.units_) {
  if (!home.asked()) return;
  agree(core.world_, core.device_, "seal",
        [&] { home.open(windows.ring_bytes(), gathers.fetch_bytes()); });
}

}  // namespace zero
