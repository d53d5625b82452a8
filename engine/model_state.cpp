// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_state.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "collectives/host_values.h"
#include "device/cpu/primitives.h"
#include "engine/sharding.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

/// Calls `visit` for the runs of a parameter among `values`, the elements of its segment's flat
/// layout from `begin` on.
void for_each_run(const Unit& unit, int index, const View& values, std::int64_t begin,
                  const ModelState::Visit& visit) {
  const Placement& placement = unit.placement(index);
  const FlatRange held = placement.range().within({begin, values.count()});
  if (held.count == 0) return;
  unit.spec(index).for_each_run(
      held.begin - placement.begin, held.count, [&](const TensorSlice::Run& run) {
        visit(run, values.slice(placement.begin + run.local - begin, run.count));
      });
}

/// The same for those of the logical elements `wanted`, in the order of the logical tensor.
void for_each_run_of(const Unit& unit, int index, const FlatRange& wanted, const View& values,
                     std::int64_t begin, const ModelState::Visit& visit) {
  const Placement& placement = unit.placement(index);
  const FlatRange held = placement.range().within({begin, values.count()});
  if (held.count == 0) return;
  const FlatRange local{held.begin - placement.begin, held.count};
  unit.spec(index).for_each_run_of_logical(
      wanted.begin, wanted.count, [&](const TensorSlice::Run& run) {
        const FlatRange kept = FlatRange{run.local, run.count}.within(local);
        if (kept.count == 0) return;
        visit({kept.begin, run.logical + kept.begin - run.local, kept.count, run.copy},
              values.slice(placement.begin + kept.begin - begin, kept.count));
      });
}

/// In the order in which a hash takes them.
constexpr std::array kHashedKinds = {StateKind::parameter, StateKind::moment0, StateKind::moment1};

std::size_t moment_of(StateKind kind) { return kind == StateKind::moment0 ? 0 : 1; }

/// The element of `whole` at which `codes`, cut from it, begin.
std::int64_t begin_in(const CodedMoment& whole, const View& codes) {
  return static_cast<const std::byte*>(codes.data()) -
         static_cast<const std::byte*>(whole.codes.data());
}

/// The moment of the codes, which were cut from the segment's.
CodedMoment coded(const Segment& segment, StateKind kind, const View& codes) {
  const CodedMoment whole = segment.coded(moment_of(kind));
  return whole.slice(begin_in(whole, codes), codes.count());
}

}  // namespace

/// All values of one kind that this rank holds, the extent of the segment: its shard, or the whole
/// if every rank holds whole states.
View ModelState::kept_values(const Segment& segment, StateKind kind) const {
  if (kind == StateKind::gradient) return segment.finished_gradient();
  if (kind == StateKind::parameter) return segment.trainable ? segment.master : segment.own;
  return segment.moments[moment_of(kind)];
}

View ModelState::shard_values(const Segment& segment, StateKind kind) const {
  const View kept = kept_values(segment, kind);
  if (kept.empty()) return kept;
  const std::int64_t begin = segment.layout.shard() * context_.mesh.axis(Axis::shard).rank();
  return kept.slice(begin - segment.own_begin, segment.layout.shard());
}

View ModelState::owned(const Unit& unit, int index, const View& shard) const {
  if (shard.empty()) return {};
  const FlatLayout& layout = unit.segment_of(index).layout;
  const int rank = context_.mesh.axis(Axis::shard).rank();
  const FlatRange own = layout.owned(rank, unit.placement(index).range());
  return own.count == 0 ? View() : shard.slice(own.begin - layout.shard() * rank, own.count);
}

void ModelState::visit_within(const Unit& unit, int index, const View& shard,
                              const Visit& visit) const {
  const int rank = context_.mesh.axis(Axis::shard).rank();
  for_each_run(unit, index, shard, unit.segment_of(index).layout.shard() * rank, visit);
}

bool ModelState::is_first(const ParameterSpec& spec, const TensorSlice::Run& run) const {
  return spec.slice ? run.copy == 0 : context_.mesh.mesh().index(Axis::tensor) == 0;
}

/// Whether trainable parameters have such a state.
bool ModelState::has(StateKind kind) const {
  if (kind == StateKind::moment0) return context_.moments >= 1;
  if (kind == StateKind::moment1) return context_.moments >= 2;
  return true;
}

std::vector<LogicalTensor> ModelState::tensors(StateKind kind) const {
  std::vector<LogicalTensor> tensors;
  if (!has(kind)) return tensors;
  for (std::size_t u = 0; u < context_.units.size(); ++u) {
    const Unit& unit = context_.units[u];
    for (int i = 0; i < unit.parameters(); ++i) {
      const ParameterSpec& spec = unit.spec(i);
      if (kind != StateKind::parameter && !spec.trainable) continue;
      tensors.push_back({unit.full_name(i), spec.logical_shape(), kind, spec.trainable,
                         kept_values(unit.segment_of(i), kind).dtype(), static_cast<int>(u), i});
    }
  }
  return tensors;
}

std::vector<HeldTensor> ModelState::held_tensors(StateKind kind) const {
  std::vector<HeldTensor> held;
  const bool in_first_group = context_.mesh.mesh().index(Axis::replicate) == 0;
  for (LogicalTensor& tensor : tensors(kind)) {
    const Parameter of = find(tensor);
    const ParameterSpec& spec = of.unit->spec(of.index);
    held.push_back({std::move(tensor), {}});
    visit(*of.unit, of.index, kind, [&](const TensorSlice::Run& run, const View& values) {
      held.back().views.push_back({run.logical, values, in_first_group && is_first(spec, run)});
    });
  }
  return held;
}

ModelState::Parameter ModelState::find(std::string_view name, StateKind kind,
                                       const View& values) const {
  for (const Unit& unit : context_.units) {
    const auto found = std::ranges::find(unit.full_names, name);
    if (found == unit.full_names.end()) continue;
    const auto index = static_cast<int>(found - unit.full_names.begin());
    const ParameterSpec& spec = unit.spec(index);
    const std::int64_t count = spec.logical_count();
    ZERO_CHECK(values.dtype() == DType::fp32 && values.count() == count,
               "\"{}\" has {} elements, expected a host view of {} fp32, found {} {}", name, count,
               count, values.count(), name_of(values.dtype()));
    ZERO_CHECK(kind == StateKind::parameter || spec.trainable,
               "\"{}\" is frozen: it has no gradient and no optimizer states", name);
    ZERO_CHECK(has(kind), "\"{}\": the optimizer keeps {} moments", name, context_.moments);
    return {&unit, index};
  }
  fail("[rank {}] there is no parameter \"{}\"", context_.mesh.world().rank(), name);
}

ModelState::Parameter ModelState::find(const LogicalTensor& tensor) const {
  const bool known = tensor.unit >= 0 && tensor.unit < std::ssize(context_.units);
  const Unit* unit = known ? &context_.units[static_cast<std::size_t>(tensor.unit)] : nullptr;
  ZERO_CHECK(
      known && tensor.parameter >= 0 && tensor.parameter < unit->parameters() &&
          unit->full_name(tensor.parameter) == tensor.name &&
          (tensor.kind == StateKind::parameter || unit->spec(tensor.parameter).trainable) &&
          has(tensor.kind),
      "[rank {}] \"{}\" (parameter {} of unit {}) is no such tensor of this engine; take one "
      "that EngineStates::tensors() lists",
      context_.mesh.world().rank(), tensor.name, tensor.parameter, tensor.unit);
  return {unit, tensor.parameter};
}

std::vector<StateRun> ModelState::runs(const Unit& unit, int index, StateKind kind) const {
  std::vector<StateRun> runs;
  visit(unit, index, kind, [&](const TensorSlice::Run& run, const View& /*values*/) {
    runs.push_back({run.logical, run.count, is_first(unit.spec(index), run)});
  });
  std::ranges::sort(runs, {}, &StateRun::begin);
  return runs;
}

bool ModelState::keeps(const Parameter& of, StateKind kind, std::int64_t begin,
                       std::int64_t count) const {
  const Segment& segment = of.unit->segment_of(of.index);
  bool any = false;
  for_each_run_of(*of.unit, of.index, {begin, count}, kept_values(segment, kind), segment.own_begin,
                  [&](const TensorSlice::Run& /*run*/, const View& /*kept*/) { any = true; });
  return any;
}

void ModelState::copy(const Parameter& from, StateKind kind, std::int64_t begin, const View& to,
                      Stream& stream) const {
  const Unit& unit = *from.unit;
  const Segment& segment = unit.segment_of(from.index);
  ZERO_CHECK(to.dtype() == DType::fp32, "\"{}\" is copied to {}, expected fp32",
             unit.full_name(from.index), name_of(to.dtype()));
  if (to.empty()) return;
  View values;
  for_each_run_of(unit, from.index, {begin, to.count()}, shard_values(segment, kind),
                  segment.layout.shard() * context_.mesh.axis(Axis::shard).rank(),
                  [&](const TensorSlice::Run& run, const View& held) {
                    if (run.count == to.count()) values = held;
                  });
  ZERO_CHECK(!values.empty(),
             "[rank {}] elements [{}, {}) of \"{}\" are not in one run of this rank's; copy parts "
             "of the runs that EngineStates::runs() lists",
             context_.mesh.world().rank(), begin, begin + to.count(), unit.full_name(from.index));
  if (values.dtype() == DType::u8)
    return context_.coded.copy(coded(segment, kind, values), to, stream);
  context_.access.copy(values, to, stream);
}

/// Sets codes of a parameter's moment from the values of their elements.
void ModelState::set_coded(const Unit& unit, int index, StateKind kind, const View& codes,
                           const View& values) const {
  const Segment& segment = unit.segment_of(index);
  const CodedMoment whole = segment.coded(moment_of(kind));
  const std::int64_t end = unit.placement(index).range().end() - segment.own_begin;
  context_.coded.set(whole, begin_in(whole, codes), std::min(end, whole.codes.count()), values);
}

void ModelState::set(const Unit& unit, int index, StateKind kind, std::int64_t begin,
                     const View& values) const {
  const std::int64_t count = unit.spec(index).logical_count();
  ZERO_CHECK(
      values.dtype() == DType::fp32 && begin >= 0 && begin <= count - values.count(),
      "\"{}\" has {} elements; expected values in fp32 for some of them, found {} in {} from "
      "element {} on",
      unit.full_name(index), count, values.count(), name_of(values.dtype()), begin);
  const Segment& segment = unit.segment_of(index);
  for_each_run_of(unit, index, {begin, values.count()}, kept_values(segment, kind),
                  segment.own_begin, [&](const TensorSlice::Run& run, const View& kept) {
                    const View given = values.slice(run.logical - begin, run.count);
                    if (kept.dtype() == DType::u8) return set_coded(unit, index, kind, kept, given);
                    context_.access.set(kept, given);
                  });
  context_.device.compute().synchronize();
}

DType ModelState::value_dtype(const Segment& segment, StateKind kind) const {
  const DType dtype = kept_values(segment, kind).dtype();
  return dtype == DType::u8 ? DType::fp32 : dtype;
}

void ModelState::read_values(const Segment& segment, StateKind kind, const View& values,
                             const StateAccess::Visit& visit) const {
  if (values.dtype() != DType::u8) return context_.access.read(values, visit);
  context_.coded.read(coded(segment, kind, values), visit);
}

/// A sliced tensor starts as zeros and the runs whose first holder this rank is; an integer sum
/// over the replica group then assembles it with all bits intact.
void ModelState::read(const Unit& unit, int index, StateKind kind, View out) const {
  const Tag tag{unit.full_name(index), {}};
  const bool sliced = unit.spec(index).slice.has_value();
  if (sliced) cpu::zero(out, context_.device.threads());
  visit(unit, index, kind, [&](const TensorSlice::Run& run, const View& values) {
    if (run.copy > 0) return;
    read_values(unit.segment_of(index), kind, values, [&](std::int64_t begin, const View& piece) {
      cpu::convert(piece, out.slice(run.logical + begin, piece.count()), context_.device.threads());
    });
  });
  if (sliced) {
    const View words = out.reinterpret(DType::i32, out.bytes() / size_of(DType::i32));
    return host_all_reduce(context_.mesh.replica_group(), context_.device, words, ReduceOp::sum,
                           tag);
  }
  const FlatLayout& layout = unit.segment_of(index).layout;
  host_all_gather(context_.mesh.axis(Axis::shard), context_.device,
                  owned_slices(layout, unit.placement(index).range(), out), tag);
}

/// This rank's addend to the hash of a tensor. A slice may cut blocks, so a sliced tensor is
/// assembled first, and each rank of the first replica group hashes a part of it.
std::uint64_t ModelState::hash_of(const Unit& unit, int index, StateKind kind) const {
  const ParameterSpec& spec = unit.spec(index);
  const std::uint64_t seed = hash_text(unit.full_name(index), static_cast<std::uint64_t>(kind));
  std::uint64_t sum = 0;
  if (context_.mesh.mesh().index(Axis::replicate) > 0) return 0;
  if (!spec.slice) {
    visit(unit, index, kind, [&](const TensorSlice::Run& run, const View& values) {
      if (!is_first(spec, run)) return;
      read_values(unit.segment_of(index), kind, values, [&](std::int64_t begin, const View& piece) {
        sum += hash_blocks(seed, run.logical + begin, piece);
      });
    });
    return sum;
  }
  const std::int64_t count = spec.logical_count();
  const DType dtype = value_dtype(unit.segment_of(index), kind);
  const std::int64_t words = div_ceil(count * size_of(dtype), size_of(DType::i32));
  const Buffer memory = context_.device.allocate_host(words, DType::i32, MemoryClass::staging,
                                                      "a sliced tensor, to hash");
  const View whole = memory.view().reinterpret(dtype, words * size_of(DType::i32) / size_of(dtype));
  read(unit, index, kind, whole);
  const std::int64_t blocks = div_ceil(count, kAlignment);
  const std::int64_t ranks = context_.mesh.replica_group().size();
  const std::int64_t rank = context_.mesh.replica_group().rank();
  const std::int64_t begin = std::min(blocks * rank / ranks * kAlignment, count);
  const std::int64_t end = std::min(blocks * (rank + 1) / ranks * kAlignment, count);
  return hash_blocks(seed, begin, whole.slice(begin, end - begin));
}

std::uint64_t ModelState::hash(const PassProgress& progress) const {
  std::map<std::string, std::array<std::uint64_t, kHashedKinds.size()>> sums;
  const auto kinds_of = [&](const Unit& unit, int index) {
    return static_cast<std::size_t>(unit.spec(index).trainable ? 1 + context_.moments : 1);
  };
  std::int64_t all = 0;
  for (const Unit& unit : context_.units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      all += unit.spec(i).logical_count() * static_cast<std::int64_t>(kinds_of(unit, i));
    }
  }
  std::int64_t done = 0;
  for (const Unit& unit : context_.units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      auto& sum = sums[unit.full_name(i)];
      for (std::size_t k = 0; k < kinds_of(unit, i); ++k) {
        sum[k] = hash_of(unit, i, kHashedKinds[k]);
        done += unit.spec(i).logical_count();
        if (progress) progress(done, all);
      }
    }
  }
  const Buffer hashes =
      context_.device.allocate_host(static_cast<std::int64_t>(sums.size() * kHashedKinds.size()),
                                    DType::i64, MemoryClass::staging, "state hash");
  const std::span<std::int64_t> values = hashes.view().as<std::int64_t>();
  std::size_t at = 0;
  for (const auto& [name, kinds] : sums) {
    for (const std::uint64_t sum : kinds) values[at++] = static_cast<std::int64_t>(sum);
  }
  host_all_reduce(context_.mesh.world(), context_.device, hashes.view(), ReduceOp::sum,
                  {"state hash", {}});
  std::string text;
  at = 0;
  for (const auto& [name, kinds] : sums) {
    text += name + '\n';
    for (std::size_t k = 0; k < kinds.size(); ++k)
      text += fmt::format("{:016x}\n", static_cast<std::uint64_t>(values[at++]));
  }
  return hash_text(text, 0);
}

}  // namespace zero
