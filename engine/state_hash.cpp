// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/state_hash.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "base/checked_math.h"
#include "collectives/host_values.h"
#include "engine/value_hash.h"

namespace zero {
namespace {

constexpr std::array kHashedKinds = {StateKind::parameter, StateKind::moment0, StateKind::moment1};

/// This rank's addend to the hash of a tensor. A slice may cut blocks, so a sliced tensor is
/// assembled first, and each rank of the first replica group hashes a part of it.
std::uint64_t hash_of(const ModelState& states, const Unit& unit, int index, StateKind kind) {
  const ModelState::Context& context = states.context();
  const ParameterSpec& spec = unit.spec(index);
  const std::uint64_t seed = hash_text(unit.full_name(index), static_cast<std::uint64_t>(kind));
  std::uint64_t sum = 0;
  if (context.mesh.mesh().index(Axis::replicate) > 0) return 0;
  if (!spec.slice) {
    states.visit(unit, index, kind, [&](const TensorSlice::Run& run, const View& values) {
      if (!states.is_first(spec, run)) return;
      states.read_values(unit.segment_of(index), kind, values,
                         [&](std::int64_t begin, const View& piece) {
                           sum += hash_blocks(seed, run.logical + begin, piece);
                         });
    });
    return sum;
  }
  const std::int64_t count = spec.logical_count();
  const DType dtype = states.value_dtype(unit.segment_of(index), kind);
  const std::int64_t words = div_ceil(count * size_of(dtype), size_of(DType::i32));
  const Buffer memory = context.device.allocate_host(words, DType::i32, MemoryClass::staging,
                                                     "a sliced tensor, to hash");
  const View whole = memory.view().reinterpret(dtype, words * size_of(DType::i32) / size_of(dtype));
  states.read(unit, index, kind, whole);
  const std::int64_t blocks = div_ceil(count, kAlignment);
  const std::int64_t ranks = context.mesh.replica_group().size();
  const std::int64_t rank = context.mesh.replica_group().rank();
  const std::int64_t begin = std::min(blocks * rank / ranks * kAlignment, count);
  const std::int64_t end = std::min(blocks * (rank + 1) / ranks * kAlignment, count);
  return hash_blocks(seed, begin, whole.slice(begin, end - begin));
}

}  // namespace

std::uint64_t state_hash(const ModelState& states) {
  const ModelState::Context& context = states.context();
  std::map<std::string, std::array<std::uint64_t, kHashedKinds.size()>> sums;
  for (const Unit& unit : context.units) {
    for (int i = 0; i < unit.parameters(); ++i) {
      auto& sum = sums[unit.full_name(i)];
      const int kinds = unit.spec(i).trainable ? 1 + context.moments : 1;
      for (std::size_t k = 0; k < static_cast<std::size_t>(kinds); ++k)
        sum[k] = hash_of(states, unit, i, kHashedKinds[k]);
    }
  }
  const Buffer all =
      context.device.allocate_host(static_cast<std::int64_t>(sums.size() * kHashedKinds.size()),
                                   DType::i64, MemoryClass::staging, "state hash");
  const std::span<std::int64_t> values = all.view().as<std::int64_t>();
  std::size_t at = 0;
  for (const auto& [name, kinds] : sums) {
    for (const std::uint64_t sum : kinds) values[at++] = static_cast<std::int64_t>(sum);
  }
  host_all_reduce(context.mesh.world(), context.device, all.view(), ReduceOp::sum,
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
