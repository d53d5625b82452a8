// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/model_state.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/checked_math.h"
#include "collectives/host_values.h"
#include "device/cpu/primitives.h"
#include "engine/sharding.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

constexpr std::array kHashedKinds = {StateKind::parameter, StateKind::moment0, StateKind::moment1};

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

}  // namespace

/// All values of one kind that this rank holds, the extent of the segment: its shard, or the whole
/// if every rank holds whole states.
View ModelState::kept_values(const Segment& segment, StateKind kind) const {
  if (kind == StateKind::gradient) return segment.finished_gradient();
  if (kind == StateKind::parameter) return segment.trainable ? segment.master : segment.own;
  return segment.moments[kind == StateKind::moment0 ? 0 : 1];
}

View ModelState::shard_values(const Segment& segment, StateKind kind) const {
  const View kept = kept_values(segment, kind);
  if (kept.empty()) return kept;
  const std::int64_t begin = segment.layout.shard() * place_.mesh.axis(Axis::shard).rank();
  return kept.slice(begin - segment.own_begin, segment.layout.shard());
}

View ModelState::owned(const Unit& unit, int index, const View& shard) const {
  if (shard.empty()) return {};
  const FlatLayout& layout = unit.segment_of(index).layout;
  const int rank = place_.mesh.axis(Axis::shard).rank();
  const FlatRange own = layout.owned(rank, unit.placement(index).range());
  return own.count == 0 ? View() : shard.slice(own.begin - layout.shard() * rank, own.count);
}

void ModelState::visit_within(const Unit& unit, int index, const View& shard,
                              const Visit& visit) const {
  const int rank = place_.mesh.axis(Axis::shard).rank();
  for_each_run(unit, index, shard, unit.segment_of(index).layout.shard() * rank, visit);
}

/// Whether this rank hashes and saves the run, of all ranks that hold it.
bool ModelState::is_primary(const ParameterSpec& spec, const TensorSlice::Run& run) const {
  const Mesh& mesh = place_.mesh.mesh();
  const bool first_copy = spec.slice ? run.copy == 0 : mesh.index(Axis::tensor) == 0;
  return first_copy && mesh.index(Axis::replicate) == 0;
}

std::vector<LogicalTensor> ModelState::tensors(StateKind kind) const {
  std::vector<LogicalTensor> tensors;
  const int moment = static_cast<int>(kind) - static_cast<int>(StateKind::moment0);
  const bool is_moment = kind == StateKind::moment0 || kind == StateKind::moment1;
  if (is_moment && moment >= place_.moments) return tensors;
  for (const Unit& unit : place_.units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      const ParameterSpec& spec = unit.spec(i);
      if (kind != StateKind::parameter && !spec.trainable) continue;
      tensors.push_back({unit.full_name(i), spec.logical_shape(), kind, spec.trainable, {}});
      visit(unit, i, kind, [&](const TensorSlice::Run& run, const View& values) {
        tensors.back().parts.push_back({run.logical, values, is_primary(spec, run)});
      });
    }
  }
  return tensors;
}

ModelState::Parameter ModelState::find(std::string_view name, StateKind kind,
                                       const View& values) const {
  for (Unit& unit : place_.units) {
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
    ZERO_CHECK((kind != StateKind::moment0 || place_.moments >= 1) &&
                   (kind != StateKind::moment1 || place_.moments >= 2),
               "\"{}\": the optimizer keeps {} moments", name, place_.moments);
    return {&unit, index};
  }
  fail("[rank {}] there is no parameter \"{}\"", place_.mesh.world().rank(), name);
}

void ModelState::copy_out(const View& values, const View& to) const {
  place_.pieces.read(values, [&](std::int64_t begin, const View& piece) {
    cpu::convert(piece, to.slice(begin, piece.count()), place_.device.threads());
  });
}

/// A sliced tensor starts as zeros and the runs whose first holder this rank is; an integer sum
/// over the replica then assembles it with all bits intact.
void ModelState::read(const Unit& unit, int index, StateKind kind, View out) const {
  const Tag tag{unit.full_name(index), {}};
  const bool sliced = unit.spec(index).slice.has_value();
  if (sliced) cpu::zero(out, place_.device.threads());
  visit(unit, index, kind, [&](const TensorSlice::Run& run, const View& values) {
    if (run.copy == 0) copy_out(values, out.slice(run.logical, run.count));
  });
  if (sliced) {
    const View words = out.reinterpret(DType::i32, out.bytes() / size_of(DType::i32));
    return host_all_reduce(place_.mesh.replica(), place_.device, words, ReduceOp::sum, tag);
  }
  const FlatLayout& layout = unit.segment_of(index).layout;
  host_all_gather(place_.mesh.axis(Axis::shard), place_.device,
                  owned_slices(layout, unit.placement(index).range(), out), tag);
}

void ModelState::write(const Unit& unit, int index, StateKind kind, const View& values) const {
  const Segment& segment = unit.segment_of(index);
  for_each_run(unit, index, kept_values(segment, kind), segment.own_begin,
               [&](const TensorSlice::Run& run, const View& kept) {
                 const View given = values.slice(run.logical, run.count);
                 place_.pieces.write(kept, [&](std::int64_t at, const View& piece) {
                   cpu::convert(given.slice(at, piece.count()), piece, place_.device.threads());
                 });
               });
}

/// This rank's addend to the hash of a tensor. A slice may cut blocks, so a sliced tensor is
/// assembled first, and each rank of the first replica hashes a part of it.
std::uint64_t ModelState::hash_of(const Unit& unit, int index, StateKind kind) const {
  const ParameterSpec& spec = unit.spec(index);
  const std::uint64_t seed = hash_text(unit.full_name(index), static_cast<std::uint64_t>(kind));
  std::uint64_t sum = 0;
  if (!spec.slice) {
    visit(unit, index, kind, [&](const TensorSlice::Run& run, const View& values) {
      if (!is_primary(spec, run)) return;
      place_.pieces.read(values, [&](std::int64_t begin, const View& piece) {
        sum += hash_blocks(seed, run.logical + begin, piece);
      });
    });
    return sum;
  }
  if (place_.mesh.mesh().index(Axis::replicate) > 0) return 0;
  const std::int64_t count = spec.logical_count();
  const DType dtype = shard_values(unit.segment_of(index), kind).dtype();
  const std::int64_t words = div_ceil(count * size_of(dtype), size_of(DType::i32));
  const Buffer memory = place_.device.allocate_host(words, DType::i32, MemoryClass::staging,
                                                    "a sliced tensor, to hash");
  const View whole = memory.view().reinterpret(dtype, words * size_of(DType::i32) / size_of(dtype));
  read(unit, index, kind, whole);
  const std::int64_t blocks = div_ceil(count, kAlignment);
  const std::int64_t ranks = place_.mesh.replica().size();
  const std::int64_t rank = place_.mesh.replica().rank();
  const std::int64_t begin = std::min(blocks * rank / ranks * kAlignment, count);
  const std::int64_t end = std::min(blocks * (rank + 1) / ranks * kAlignment, count);
  return hash_blocks(seed, begin, whole.slice(begin, end - begin));
}

std::uint64_t ModelState::hash() const {
  std::map<std::string, std::array<std::uint64_t, kHashedKinds.size()>> sums;
  for (const Unit& unit : place_.units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      auto& sum = sums[unit.full_name(i)];
      const int kinds = unit.spec(i).trainable ? 1 + place_.moments : 1;
      for (std::size_t k = 0; k < static_cast<std::size_t>(kinds); ++k)
        sum[k] = hash_of(unit, i, kHashedKinds[k]);
    }
  }
  const Buffer all =
      place_.device.allocate_host(static_cast<std::int64_t>(sums.size() * kHashedKinds.size()),
                                  DType::i64, MemoryClass::staging, "state hash");
  const std::span<std::int64_t> values = all.view().as<std::int64_t>();
  std::size_t at = 0;
  for (const auto& [name, kinds] : sums) {
    for (const std::uint64_t sum : kinds) values[at++] = static_cast<std::int64_t>(sum);
  }
  host_all_reduce(place_.mesh.world(), place_.device, all.view(), ReduceOp::sum,
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
