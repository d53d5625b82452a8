// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "collectives/host_values.h"
#include "device/cpu/primitives.h"
#include "engine/engine_core.h"

namespace zero {

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

/// All that this rank keeps of one kind, from flat element own_begin on: its shard, or, where
/// states are whole on every rank, more.
View EngineCore::kept_values(const Segment& segment, StateKind kind) const {
  if (kind == StateKind::gradient) return segment.finished_gradient();
  if (kind == StateKind::parameter) return segment.trainable ? segment.master : segment.own;
  return segment.moments[kind == StateKind::moment0 ? 0 : 1];
}

/// Whether this rank's tensor index is the first that holds the run.
bool EngineCore::is_first_copy(const ParameterSpec& spec, const TensorSlice::Run& run) const {
  return spec.slice ? run.copy == 0 : mesh_->mesh().index(Axis::tensor) == 0;
}

/// Calls visit for the runs of logical elements in this rank's shard of a parameter, whose
/// segment's shard has the values `own`.
void EngineCore::for_own_runs(const Unit& unit, int index, const View& own,
                              const OwnRun& visit) const {
  const Segment& segment = unit.segment_of(index);
  const Placement& placement = unit.placement(index);
  const std::int64_t shard_begin = segment.layout.shard() * shards_.rank();
  const std::int64_t low = std::max(placement.begin, shard_begin);
  const std::int64_t high =
      std::min(placement.begin + placement.count, shard_begin + segment.layout.shard());
  if (low >= high) return;
  const View held = own.slice(low - shard_begin, high - low);
  const std::int64_t begin = low - placement.begin;
  unit.specs[static_cast<std::size_t>(index)].for_each_run(
      begin, held.count(),
      [&](const TensorSlice::Run& run) { visit(run, held.slice(run.local - begin, run.count)); });
}

/// One logical tensor, with this rank's parts.
LogicalTensor EngineCore::own_tensor(const Unit& unit, int index, StateKind kind) const {
  const auto at = static_cast<std::size_t>(index);
  const ParameterSpec& spec = unit.specs[at];
  LogicalTensor tensor{
      unit.full_names[at], spec.logical_shape(), kind, unit.segment_of(index).trainable, {}};
  const bool first_replica = mesh_->mesh().index(Axis::replicate) == 0;
  const View own = own_part(unit.segment_of(index), kind);
  for_own_runs(unit, index, own, [&](const TensorSlice::Run& run, const View& values) {
    tensor.parts.push_back({run.logical, values, first_replica && is_first_copy(spec, run)});
  });
  return tensor;
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
    for (int i = 0; i < static_cast<int>(unit.specs.size()); ++i) {
      if (kind == StateKind::parameter || unit.segment_of(i).trainable)
        tensors.push_back(own_tensor(unit, i, kind));
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
  const std::int64_t count = unit.specs[static_cast<std::size_t>(index)].logical_count();
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

/// to = values of the device, converted; `to` is host memory.
void EngineCore::copy_out(const View& values, const View& to) {
  pieces_.read(values, [&](std::int64_t begin, const View& piece) {
    cpu::convert(piece, to.slice(begin, piece.count()), device_.threads());
  });
}

/// Every rank's share of a tensor that is whole at each tensor index, in host memory.
void EngineCore::gather_tensor(const Unit& unit, int index, StateKind kind, View out) {
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
  if (!mine.empty()) copy_out(own_part(segment, kind).slice(begin, mine.count()), mine);
  host_all_gather(shards_, device_, slices, {unit.full_names[static_cast<std::size_t>(index)], {}});
}

/// The same of one that is sliced: `out` (any dtype, host memory; its bytes a multiple of four) is
/// zero but for what this rank is the first to hold, and then summed over the replica as integers,
/// which changes no bit of anything.
void EngineCore::assemble_tensor(const Unit& unit, int index, StateKind kind, View out) {
  const ParameterSpec& spec = unit.specs[static_cast<std::size_t>(index)];
  cpu::zero(out, device_.threads());
  const View own = own_part(unit.segment_of(index), kind);
  for_own_runs(unit, index, own, [&](const TensorSlice::Run& run, const View& values) {
    if (is_first_copy(spec, run)) copy_out(values, out.slice(run.logical, run.count));
  });
  host_all_reduce(mesh_->replica(), device_,
                  out.reinterpret(DType::i32, out.bytes() / size_of(DType::i32)), ReduceOp::sum,
                  {unit.full_names[static_cast<std::size_t>(index)], {}});
}

void EngineCore::read(std::string_view name, StateKind kind, View out) {
  check_sealed("read");
  raise_failure();
  const auto [unit_index, index] = find_parameter(name);
  const Unit& unit = units_[static_cast<std::size_t>(unit_index)];
  check_transfer(unit, index, kind, out, optimizer_->moments());
  synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  if (unit.specs[static_cast<std::size_t>(index)].slice) {
    assemble_tensor(unit, index, kind, out);
  } else {
    gather_tensor(unit, index, kind, out);
  }
  traffic_mark_ = mesh_->traffic().since(pending);  // belongs to no step
}

void EngineCore::write(std::string_view name, StateKind kind, View values) {
  check_sealed("write");
  raise_failure();
  const auto [unit_index, index] = find_parameter(name);
  Unit& unit = units_[static_cast<std::size_t>(unit_index)];
  check_transfer(unit, index, kind, values, optimizer_->moments());
  if (kind == StateKind::parameter) check_between_steps("write");
  if (kind == StateKind::gradient) check_gradients_finished("write");
  synchronize();
  const Segment& segment = unit.segment_of(index);
  const Placement& placement = unit.placement(index);
  const View states = kept_values(segment, kind);
  const std::int64_t base = segment.own_begin;
  const std::int64_t low = std::max(placement.begin, base);
  const std::int64_t high = std::min(placement.begin + placement.count, base + states.count());
  if (low < high) {
    const ParameterSpec& spec = unit.specs[static_cast<std::size_t>(index)];
    const auto put = [&, own = states.slice(low - base, high - low),
                      begin = low - placement.begin](const TensorSlice::Run& run) {
      const View given = values.slice(run.logical, run.count);
      pieces_.write(own.slice(run.local - begin, run.count),
                    [&](std::int64_t at, const View& piece) {
                      cpu::convert(given.slice(at, piece.count()), piece, device_.threads());
                    });
    };
    spec.for_each_run(low - placement.begin, high - low, put);
  }
  if (kind == StateKind::parameter) publish_parameters();
  if (kind == StateKind::gradient) gradients_changed_ = true;
}

void EngineCore::check_between_steps(std::string_view call) const {
  ZERO_CHECK(cursor_ == 0 && micro_batch_ == 0 && !leased_ && !evaluating_,
             "[rank {}] {}: only between optimizer steps", world_.rank(), call);
}

void EngineCore::check_gradients_finished(std::string_view call) const {
  ZERO_CHECK(
      micro_batch_ == accumulation_steps_ && !leased_ && !evaluating_,
      "[rank {}] {}: {} of {} micro-batches are done; change a gradient after the last one's "
      "backward and before step(), when it is finished and not used yet",
      world_.rank(), call, micro_batch_, accumulation_steps_);
}

void EngineCore::publish_gradients() {
  check_sealed("publish_gradients");
  raise_failure();
  check_gradients_finished("publish_gradients");
  synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  for (const int index : order_) {
    Unit& unit = units_[static_cast<std::size_t>(index)];
    if (Segment* segment = unit.trainable(); segment != nullptr)
      sharding_->finish_gradient(*segment, {unit.name, {}});
  }
  device_.communication().synchronize();
  gradients_changed_ = true;
  traffic_mark_ = mesh_->traffic().since(pending);  // belongs to no step
}

void EngineCore::publish_parameters() {
  check_sealed("publish_parameters");
  raise_failure();
  check_between_steps("publish_parameters");
  synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  if (sharding_->in_common()) {  // a peer may still compute with the values that change now
    shards_.barrier(device_.communication(), {"publish_parameters"});
    device_.communication().synchronize();
  }
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

}  // namespace zero
