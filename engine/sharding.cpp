// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/sharding.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/checked_math.h"

namespace zero {
namespace {

/// Elements of a unit's optimizer states, of all ranks that share them.
std::int64_t trained_elements(const Unit& unit) {
  const Segment* segment = unit.trainable();
  return segment == nullptr ? 0 : segment->layout.padded();
}

/// Elements of the shards that a rank keeps of a unit; 0 if the unit stays whole.
std::int64_t shard_elements(const Unit& unit, const Sharding& sharding) {
  std::int64_t sum = 0;
  for (const Segment& segment : unit.segments) {
    if (sharding.window_elements(segment) > 0) sum += segment.layout.shard();
  }
  return sum;
}

}  // namespace

int held_partials(int micro_batches) {
  return std::bit_width(static_cast<unsigned>(micro_batches)) - 1;
}

View Sharding::keep(Segment& segment, Buffer buffer) {
  const View view = buffer.view();
  segment.buffers.push_back(std::move(buffer));
  resources_.device.kernels().zero(resources_.device.compute(), view);
  return view;
}

View Sharding::allocate(Segment& segment, std::int64_t count, DType dtype, MemoryClass memory_class,
                        const std::string& label) {
  return keep(segment,
              resources_.shards.allocate(resources_.device, count, dtype, memory_class, label));
}

void Sharding::allocate(Segment& segment, const std::string& unit, const SegmentHomes& homes) {
  place_parameters(segment, unit, homes.parameters);
  if (!segment.trainable) return;
  place_states(segment, unit, homes.states);
  place_gradients(segment, unit);
  place_partials(segment, unit);
}

void Sharding::wait_for_peers(std::string_view call) {
  if (!in_common_) return;
  resources_.shards.barrier(communication(), {std::string(call), {}});
  communication().synchronize();
}

bool Sharding::direct_gradients(const Unit& unit) const {
  const EngineOptions& options = resources_.options;
  if (!full_gradients() || resources_.gradient != options.compute) return false;
  if (unit.sums_uses && options.compute != DType::fp32) return false;  // summed in fp32 first
  if (resources_.accumulation_steps == 1) return true;
  // An fp32 shard holds a partial sum between micro-batches; a local accumulator holds all of them.
  return options.reduction == ReductionPolicy::every_micro_batch &&
         resources_.gradient != DType::fp32;
}

/// Master values and moments, which no collective uses; an fp32 compute copy is its own master.
void Sharding::place_states(Segment& segment, const std::string& unit, StateHome* home) {
  const auto in_memory = [&](std::int64_t count, DType dtype, const char* what) {
    return keep(segment,
                resources_.device.allocate(count, dtype, MemoryClass::optimizer, unit + what));
  };
  const auto state = [&](std::int64_t count, DType dtype, const char* what) {
    return home == nullptr ? in_memory(count, dtype, what)
                           : home->reserve(count, dtype, MemoryClass::optimizer, unit + what);
  };
  const std::int64_t count = segment.own.count();
  segment.master =
      segment.own.dtype() == DType::fp32 ? segment.own : state(count, DType::fp32, ".master");
  const MomentFormat format = resources_.options.optimizer.moments;
  for (std::size_t i = 0; i < static_cast<std::size_t>(resources_.moments); ++i) {
    segment.moments[i] = state(count, moment_dtype(format), ".moment");
    if (format == MomentFormat::eight_bit)
      segment.scales[i] = in_memory(div_exact(count, kMomentBlock), DType::fp32, ".moment_scale");
  }
}

/// The finished gradient's own shard serves as one of the partial sums if it is fp32.
void Sharding::place_partials(Segment& segment, const std::string& unit) {
  if (resources_.options.reduction == ReductionPolicy::boundary) return;
  int held = held_partials(resources_.accumulation_steps);
  if (held > 0 && resources_.gradient == DType::fp32) {
    segment.partials.push_back(segment.gradient_shard);
    --held;
  }
  for (int i = 0; i < held; ++i) {
    segment.partials.push_back(allocate(segment, segment.layout.shard(), DType::fp32,
                                        MemoryClass::gradients, unit + ".partial_sum"));
  }
}

View Sharding::shard_part(const Segment& segment, const FlatRange& range) const {
  const FlatRange owned = segment.layout.owned(resources_.shards.rank(), range);
  return segment.shard.slice(owned.count == 0 ? 0 : owned.begin - shard_begin(segment),
                             owned.count);
}

View Sharding::gathered_part(const Segment& segment) const {
  return shard_part(segment, {0, window_elements(segment)});
}

void Sharding::gather(const Segment& /*segment*/, View /*mine*/, View /*window*/,
                      const Tag& /*tag*/) {}

View Sharding::parameters(const Segment& segment, View /*window*/, std::int64_t begin,
                          std::int64_t count) const {
  return segment.full.slice(begin, count);
}

void Sharding::spread_states(View /*states*/, const Segment& /*segment*/,
                             const FlatRange& /*range*/, const Tag& /*tag*/) {}

namespace {

/// Stage 0: every rank keeps everything. Inherits from Sharding: leases read `full`, without a
/// gather.
class Replicated : public Sharding {
 public:
  using Sharding::Sharding;
  std::int64_t window_elements(const Segment& /*segment*/) const override { return 0; }
  std::int64_t kept_elements(const Segment& segment) const override {
    return segment.layout.padded();
  }
  void publish(Segment& /*segment*/, const Tag& /*tag*/) override {}
  std::int64_t published_elements(const Segment& /*segment*/) const override { return 0; }
  std::int64_t finished_elements(const Segment& segment) const override {
    return segment.layout.padded();
  }
  void finish_gradient(Segment& segment, const Tag& tag) override {
    resources_.shards.all_gather(segment.gradient_shard,
                                 Slices::even(segment.gradient, segment.layout.world()),
                                 communication(), {tag.purpose, Operation::all_reduce});
  }
  void spread_states(View states, const Segment& segment, const FlatRange& range,
                     const Tag& tag) override {
    const Slices slices = owned_slices(segment.layout, range, states);
    resources_.shards.all_gather(slices.of(resources_.shards.rank()), slices, communication(), tag);
  }
  bool full_gradients() const override { return true; }
  Operation reduce_traffic() const override { return Operation::all_reduce; }

 protected:
  void place_parameters(Segment& segment, const std::string& unit, StateHome* /*home*/) override {
    segment.full = allocate(segment, segment.layout.padded(), resources_.options.compute,
                            MemoryClass::parameters, unit);
    segment.shard = segment.full.slice(shard_begin(segment), segment.layout.shard());
    segment.own = segment.full;
  }
  void place_gradients(Segment& segment, const std::string& unit) override {
    segment.gradient = allocate(segment, segment.layout.padded(), resources_.gradient,
                                MemoryClass::gradients, unit);
    segment.gradient_shard = segment.gradient.slice(shard_begin(segment), segment.layout.shard());
  }
};

/// Stage 1: optimizer states of the own shard; the others' parameters are gathered after the step.
/// Inherits from stage 0: the place of gradients, and of parameters that are frozen or fp32.
class ShardedOptimizer : public Replicated {
 public:
  using Replicated::Replicated;
  std::int64_t published_elements(const Segment& segment) const override {
    return segment.layout.padded();
  }
  std::int64_t finished_elements(const Segment& /*segment*/) const override { return 0; }
  void publish(Segment& segment, const Tag& tag) override {
    resources_.shards.all_gather(segment.shard, Slices::even(segment.full, segment.layout.world()),
                                 communication(), tag);
  }
  void finish_gradient(Segment& /*segment*/, const Tag& /*tag*/) override {}
  void spread_states(View /*states*/, const Segment& /*segment*/, const FlatRange& /*range*/,
                     const Tag& /*tag*/) override {}
  Operation reduce_traffic() const override { return Operation::reduce_scatter; }

 protected:
  /// In memory that a host's ranks share, each rank updates its shard in place, and publish only
  /// synchronizes them. Not if the compute copy is the master itself, because read(), write() and
  /// checkpoints access the master at other times.
  void place_parameters(Segment& segment, const std::string& unit, StateHome* home) override {
    if (segment.trainable && resources_.options.compute != DType::fp32) {
      place_in_common(segment, unit);
    } else {
      Replicated::place_parameters(segment, unit, home);
    }
    own_shard(segment);
  }
  void own_shard(Segment& segment) const {
    segment.own = segment.shard;
    segment.own_begin = shard_begin(segment);
  }

 private:
  void place_in_common(Segment& segment, const std::string& unit) {
    SharedBuffer made = resources_.shards.allocate_shared(
        resources_.device, segment.layout.padded(), resources_.options.compute,
        MemoryClass::parameters, unit);
    segment.full = made.buffer.view();
    segment.shard = segment.full.slice(shard_begin(segment), segment.layout.shard());
    segment.buffers.push_back(std::move(made.buffer));
    in_common_ = in_common_ || made.shared;
    if (!made.shared) resources_.device.kernels().zero(resources_.device.compute(), segment.full);
  }
};

/// Stage 2: also gradients of the own shard only. Inherits from stage 1: parameters, their
/// gather after the step, states.
class ShardedGradients : public ShardedOptimizer {
 public:
  using ShardedOptimizer::ShardedOptimizer;
  bool full_gradients() const override { return false; }

 protected:
  void place_gradients(Segment& segment, const std::string& unit) override {
    segment.gradient = allocate(segment, segment.layout.shard(), resources_.gradient,
                                MemoryClass::gradients, unit);
    segment.gradient_shard = segment.gradient;
  }
};

/// Stage 3: also parameters of the own shard only; gathered per unit around compute. Small ones
/// stay whole, beside the shards, which may live in a StateHome. Inherits from stage 2: gradients
/// and states of the own shard; all of a segment of which nothing is gathered.
class ShardedParameters : public ShardedGradients {
 public:
  using ShardedGradients::ShardedGradients;
  std::int64_t window_elements(const Segment& segment) const override {
    return segment.layout.tail_begin();
  }
  std::int64_t kept_elements(const Segment& segment) const override {
    if (whole(segment)) return segment.layout.padded();
    const bool away = resources_.options.tiers.parameters != Tier::device;
    return (away ? 0 : segment.layout.shard()) + segment.layout.tail();
  }
  std::int64_t published_elements(const Segment& segment) const override {
    return whole(segment) ? segment.layout.padded() : segment.layout.tail();
  }

  void gather(const Segment& segment, View mine, View window, const Tag& tag) override {
    if (whole(segment)) return;
    const Slices slices = owned_slices(segment.layout, {0, segment.layout.tail_begin()}, window);
    resources_.shards.all_gather(mine, slices, communication(), tag);
  }
  View parameters(const Segment& segment, View window, std::int64_t begin,
                  std::int64_t count) const override {
    if (whole(segment)) return ShardedGradients::parameters(segment, window, begin, count);
    const std::int64_t tail = segment.layout.tail_begin();
    return begin >= tail && segment.layout.tail() > 0 ? segment.tail.slice(begin - tail, count)
                                                      : window.slice(begin, count);
  }
  void publish(Segment& segment, const Tag& tag) override {
    if (whole(segment)) return ShardedGradients::publish(segment, tag);
    if (segment.layout.tail() == 0) return;
    const Slices slices = owned_slices(segment.layout, segment.small(), segment.tail);
    const View mine = segment.shard_away ? slices.of(resources_.shards.rank())
                                         : shard_part(segment, segment.small());
    resources_.shards.all_gather(mine, slices, communication(), tag);
  }

 protected:
  void place_parameters(Segment& segment, const std::string& unit, StateHome* home) override {
    if (whole(segment)) return ShardedGradients::place_parameters(segment, unit, home);
    const std::int64_t count = segment.layout.shard();
    const DType compute = resources_.options.compute;
    segment.shard_away = home != nullptr;
    segment.shard =
        segment.shard_away
            ? home->reserve(count, compute, MemoryClass::parameters, unit)
            : keep(segment, resources_.shards.allocate_symmetric(resources_.device, count, compute,
                                                                 MemoryClass::parameters, unit));
    segment.tail = allocate(segment, segment.layout.tail(), resources_.options.compute,
                            MemoryClass::parameters, unit + ".whole");
    own_shard(segment);
  }

 private:
  /// A unit that is cheaper whole has been laid out with all of it as tail
  /// (EngineCore::lay_out_units).
  static bool whole(const Segment& segment) { return segment.layout.tail_begin() == 0; }
};

}  // namespace

Slices owned_slices(const FlatLayout& layout, const FlatRange& range, View buffer) {
  Slices slices{buffer, {}};
  for (int rank = 0; rank < layout.world(); ++rank) {
    const FlatRange owned = layout.owned(rank, range);
    slices.ranges.push_back({owned.begin - range.begin, owned.count});
  }
  return slices;
}

std::unique_ptr<Sharding> make_sharding(EngineResources resources) {
  switch (resources.options.stage) {
    case 0:
      return std::make_unique<Replicated>(resources);
    case 1:
      return std::make_unique<ShardedOptimizer>(resources);
    case 2:
      return std::make_unique<ShardedGradients>(resources);
    case 3:
      return std::make_unique<ShardedParameters>(resources);
    default:
      fail("stage is {}, expected 0, 1, 2 or 3", resources.options.stage);
  }
}

TierUnits units_away(std::span<const Unit> units, std::span<const int> order,
                     const Sharding& sharding, const TierOptions& tiers) {
  TierUnits away{std::vector<bool>(units.size()), std::vector<bool>(units.size())};
  double all = 0;
  for (const Unit& unit : units) all += static_cast<double>(trained_elements(unit));
  double states = tiers.optimizer != Tier::device ? tiers.optimizer_ratio * all : -1;
  std::int64_t in_memory = tiers.parameters_in_memory;
  for (const int index : order) {
    const auto at = static_cast<std::size_t>(index);
    const auto trained = static_cast<double>(trained_elements(units[at]));
    away.states[at] = trained <= states;
    if (away.states[at]) states -= trained;
    const std::int64_t shards = shard_elements(units[at], sharding);
    if (tiers.parameters == Tier::device || shards == 0) continue;
    away.parameters[at] = shards > in_memory;
    if (!away.parameters[at]) in_memory -= shards;
  }
  return away;
}

}  // namespace zero
