// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <map>

#include "engine/engine_core.h"

namespace zero {
namespace {

constexpr std::array kHashedKinds = {StateKind::parameter, StateKind::moment0, StateKind::moment1};

/// Hashes aligned blocks of a tensor by their place, so that any split of the tensor gives the same
/// sum.
std::uint64_t hash_blocks(std::string_view name, StateKind kind, const LogicalTensor::Part& part) {
  const std::uint64_t tensor =
      XXH3_64bits_withSeed(name.data(), name.size(), static_cast<std::uint64_t>(kind));
  std::uint64_t sum = 0;
  for (std::int64_t begin = 0; begin < part.values.count(); begin += kAlignment) {
    const View block = part.values.slice(begin, std::min(kAlignment, part.values.count() - begin));
    const auto place = static_cast<std::uint64_t>(part.begin + begin);
    sum += XXH3_64bits_withSeed(block.data(), static_cast<std::size_t>(block.bytes()),
                                tensor + place * 0x9e3779b97f4a7c15ULL);
  }
  return sum;
}

}  // namespace

/// This rank's shard of one kind of state, shard() elements.
View EngineCore::own_part(const Segment& segment, StateKind kind) const {
  const auto shard_of = [&](const View& states) {
    return states.slice(segment.layout.shard() * shards_.rank() - segment.own_begin,
                        segment.layout.shard());
  };
  switch (kind) {
    case StateKind::parameter:
      return segment.trainable ? shard_of(segment.master) : segment.shard;
    case StateKind::moment0:
      return shard_of(segment.moments[0]);
    case StateKind::moment1:
      return shard_of(segment.moments[1]);
    case StateKind::gradient:
      return segment.gradient_shard;
  }
  return {};
}

std::vector<LogicalTensor> EngineCore::state(StateKind kind) {
  check_sealed("state");
  raise_failure();
  synchronize();
  std::vector<LogicalTensor> tensors;
  const int moment = static_cast<int>(kind) - static_cast<int>(StateKind::moment0);
  const bool is_moment = kind == StateKind::moment0 || kind == StateKind::moment1;
  if (is_moment && moment >= optimizer_->moments()) return tensors;
  for (const Unit& unit : units_) {
    for (std::size_t i = 0; i < unit.specs.size(); ++i) {
      const Segment& segment = unit.segment_of(static_cast<int>(i));
      if (kind != StateKind::parameter && !segment.trainable) continue;
      LogicalTensor tensor{unit.full_names[i], unit.specs[i].shape, kind, segment.trainable, {}};
      const Placement& placement = unit.placement(static_cast<int>(i));
      const std::int64_t shard_begin = segment.layout.shard() * shards_.rank();
      const std::int64_t low = std::max(placement.begin, shard_begin);
      const std::int64_t high =
          std::min(placement.begin + placement.count, shard_begin + segment.layout.shard());
      if (low < high) {
        tensor.parts.push_back(
            {low - placement.begin, own_part(segment, kind).slice(low - shard_begin, high - low)});
      }
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

std::pair<int, int> EngineCore::find_parameter(std::string_view name) const {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    const std::vector<std::string>& names = units_[unit].full_names;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end())
      return {static_cast<int>(unit), static_cast<int>(found - names.begin())};
  }
  fail("[rank {}] there is no parameter \"{}\"", world_.rank(), name);
}

namespace {

void check_transfer(const Unit& unit, int index, StateKind kind, const View& values, int moments) {
  const std::string& name = unit.full_names[static_cast<std::size_t>(index)];
  const std::int64_t count = unit.placement(index).count;
  ZERO_CHECK(values.dtype() == DType::fp32 && values.count() == count,
             "\"{}\" has {} elements, expected a host view of {} fp32, found {} {}", name, count,
             count, values.count(), name_of(values.dtype()));
  ZERO_CHECK(kind == StateKind::parameter || unit.segment_of(index).trainable,
             "\"{}\" is frozen: it has no gradient and no optimizer states", name);
  ZERO_CHECK(
      (kind != StateKind::moment0 || moments >= 1) && (kind != StateKind::moment1 || moments >= 2),
      "\"{}\": the optimizer keeps {} moments", name, moments);
}

}  // namespace

void EngineCore::read(std::string_view name, StateKind kind, View out) {
  check_sealed("read");
  raise_failure();
  const auto [unit_index, index] = find_parameter(name);
  const Unit& unit = units_[static_cast<std::size_t>(unit_index)];
  check_transfer(unit, index, kind, out, optimizer_->moments());
  synchronize();
  const Segment& segment = unit.segment_of(index);
  const Placement& placement = unit.placement(index);
  Slices slices{out, {}};
  for (int rank = 0; rank < segment.layout.world(); ++rank) {
    const std::int64_t low = std::clamp(segment.layout.shard() * rank, placement.begin,
                                        placement.begin + placement.count);
    const std::int64_t high = std::clamp(segment.layout.shard() * (rank + 1), placement.begin,
                                         placement.begin + placement.count);
    slices.ranges.push_back({low - placement.begin, high - low});
  }
  const int rank = shards_.rank();
  const View mine = slices.of(rank);
  const std::int64_t begin = placement.begin + slices.ranges[static_cast<std::size_t>(rank)].begin -
                             segment.layout.shard() * rank;
  if (!mine.empty())
    device_.kernels().convert(device_.compute(), own_part(segment, kind).slice(begin, mine.count()),
                              mine);
  device_.compute().synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  shards_.all_gather(mine, slices, device_.communication(),
                     {unit.full_names[static_cast<std::size_t>(index)], {}});
  device_.communication().synchronize();
  traffic_mark_ = mesh_->traffic().since(pending);  // belongs to no step
}

void EngineCore::write(std::string_view name, StateKind kind, View values) {
  check_sealed("write");
  raise_failure();
  const auto [unit_index, index] = find_parameter(name);
  Unit& unit = units_[static_cast<std::size_t>(unit_index)];
  check_transfer(unit, index, kind, values, optimizer_->moments());
  if (kind == StateKind::parameter) check_between_steps("write");
  synchronize();
  const Segment& segment = unit.segment_of(index);
  const Placement& placement = unit.placement(index);
  const bool spread =
      kind != StateKind::gradient && segment.trainable;  // states may be whole on every rank
  View states = own_part(segment, kind);
  std::int64_t base = segment.layout.shard() * shards_.rank();
  if (spread) {
    states = kind == StateKind::parameter ? segment.master
                                          : segment.moments[kind == StateKind::moment0 ? 0 : 1];
    base = segment.own_begin;
  }
  const std::int64_t low = std::max(placement.begin, base);
  const std::int64_t high = std::min(placement.begin + placement.count, base + states.count());
  if (low < high) {
    device_.kernels().convert(device_.compute(), values.slice(low - placement.begin, high - low),
                              states.slice(low - base, high - low));
  }
  device_.compute().synchronize();
  if (kind == StateKind::parameter) publish_parameters();
}

void EngineCore::check_between_steps(std::string_view call) const {
  ZERO_CHECK(cursor_ == 0 && micro_batch_ == 0 && !leased_ && !evaluating_,
             "[rank {}] {}: only between optimizer steps", world_.rank(), call);
}

void EngineCore::publish_parameters() {
  check_sealed("publish_parameters");
  raise_failure();
  check_between_steps("publish_parameters");
  synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  for (const int index : order_) {
    Unit& unit = units_[static_cast<std::size_t>(index)];
    for (Segment& segment : unit.segments) {
      if (segment.trainable) sharding_->spread_states(segment.master, segment, {unit.name, {}});
    }
    device_.communication().synchronize();
    for (Segment& segment : unit.segments) {
      if (segment.trainable && options_.compute != DType::fp32) {
        device_.kernels().convert(device_.compute(), segment.master, segment.own);
      }
      if (!segment.trainable) sharding_->spread_states(segment.full, segment, {unit.name, {}});
    }
    for (const Kind kind : {Kind::frozen, Kind::trainable}) publish(unit, kind);
  }
  Renewal renewal;
  for (const int index : order_) issue_begin(index, renewal);
  traffic_mark_ = mesh_->traffic().since(pending);
}

std::uint64_t EngineCore::state_hash() {
  std::map<std::string, std::array<std::uint64_t, kHashedKinds.size()>> sums;
  for (std::size_t k = 0; k < kHashedKinds.size(); ++k) {
    for (const LogicalTensor& tensor : state(kHashedKinds[k])) {
      std::uint64_t& sum = sums[tensor.name][k];
      for (const LogicalTensor::Part& part : tensor.parts)
        sum += hash_blocks(tensor.name, kHashedKinds[k], part);
    }
  }
  const Buffer all = device_.allocate(static_cast<std::int64_t>(sums.size() * kHashedKinds.size()),
                                      DType::i64, MemoryClass::staging, "state hash");
  const std::span<std::int64_t> values = all.view().as<std::int64_t>();
  std::size_t at = 0;
  for (const auto& [name, kinds] : sums) {
    for (const std::uint64_t sum : kinds) values[at++] = static_cast<std::int64_t>(sum);
  }
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  world_.all_reduce(all.view(), ReduceOp::sum, device_.communication(), {"state hash", {}});
  device_.communication().synchronize();
  traffic_mark_ = mesh_->traffic().since(pending);  // belongs to no step
  std::string text;
  at = 0;
  for (const auto& [name, kinds] : sums) {
    text += name + '\n';
    for (std::size_t k = 0; k < kinds.size(); ++k)
      text += fmt::format("{:016x}\n", static_cast<std::uint64_t>(values[at++]));
  }
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace zero
