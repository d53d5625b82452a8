// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>

#include "base/checked_math.h"
#include "collectives/host_values.h"
#include "engine/engine_core.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

constexpr std::array kHashedKinds = {StateKind::parameter, StateKind::moment0, StateKind::moment1};

}  // namespace

/// This rank's addend to the hash of a tensor. A slice may cut blocks: such a tensor is put
/// together first, and the ranks of the first replica hash a share of it each.
std::uint64_t EngineCore::hash_of(const Unit& unit, int index, StateKind kind) {
  const auto at = static_cast<std::size_t>(index);
  const ParameterSpec& spec = unit.specs[at];
  const std::uint64_t seed = hash_text(unit.full_names[at], static_cast<std::uint64_t>(kind));
  std::uint64_t sum = 0;
  if (!spec.slice) {
    for (const LogicalTensor::Part& part : own_tensor(unit, index, kind).parts) {
      if (!part.primary) continue;
      pieces_.read(part.values, [&](std::int64_t begin, const View& piece) {
        sum += hash_blocks(seed, part.begin + begin, piece);
      });
    }
    return sum;
  }
  if (mesh_->mesh().index(Axis::replicate) > 0) return 0;
  const std::int64_t count = spec.logical_count();
  const DType dtype = own_part(unit.segment_of(index), kind).dtype();
  const std::int64_t words = div_ceil(count * size_of(dtype), size_of(DType::i32));
  const Buffer memory =
      device_.allocate_host(words, DType::i32, MemoryClass::staging, "a sliced tensor, to hash");
  const View whole = memory.view().reinterpret(dtype, words * size_of(DType::i32) / size_of(dtype));
  assemble_tensor(unit, index, kind, whole);
  const std::int64_t blocks = div_ceil(count, kAlignment);
  const std::int64_t ranks = mesh_->replica().size();
  const std::int64_t rank = mesh_->replica().rank();
  const std::int64_t begin = std::min(blocks * rank / ranks * kAlignment, count);
  const std::int64_t end = std::min(blocks * (rank + 1) / ranks * kAlignment, count);
  return hash_blocks(seed, begin, whole.slice(begin, end - begin));
}

std::uint64_t EngineCore::state_hash() {
  check_sealed("state_hash");
  raise_failure();
  synchronize();
  const MeshTraffic pending = mesh_->traffic().since(traffic_mark_);
  const auto moments = static_cast<std::size_t>(optimizer_->moments());
  std::map<std::string, std::array<std::uint64_t, kHashedKinds.size()>> sums;
  for (const Unit& unit : units_) {
    for (std::size_t i = 0; i < unit.specs.size(); ++i) {
      const int index = static_cast<int>(i);
      const std::size_t kinds = unit.segment_of(index).trainable ? 1 + moments : 1;
      auto& sum = sums[unit.full_names[i]];
      for (std::size_t k = 0; k < kinds; ++k) sum[k] = hash_of(unit, index, kHashedKinds[k]);
    }
  }
  const Buffer all =
      device_.allocate_host(static_cast<std::int64_t>(sums.size() * kHashedKinds.size()),
                            DType::i64, MemoryClass::staging, "state hash");
  const std::span<std::int64_t> values = all.view().as<std::int64_t>();
  std::size_t at = 0;
  for (const auto& [name, kinds] : sums) {
    for (const std::uint64_t sum : kinds) values[at++] = static_cast<std::int64_t>(sum);
  }
  host_all_reduce(world_, device_, all.view(), ReduceOp::sum, {"state hash", {}});
  traffic_mark_ = mesh_->traffic().since(pending);  // belongs to no step
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
