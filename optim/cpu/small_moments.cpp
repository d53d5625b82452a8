// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/cpu/small_moments.cpp"
#include <hwy/foreach_target.h>
// Highway requires this include after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "optim/cpu/moment_lanes-inl.h"
#include "optim/cpu/small_moments.h"
#include "optim/cpu/sweep-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// Both moments in bf16; an element's two draws are halves of one word.
struct Bf16Moments {
  bfloat16* values[2];
  codec::Random random;
  std::uint32_t element;  ///< of index 0

  template <int kMoment, class Access>
  HWY_INLINE Lane load(Access access, std::int64_t i) const {
    return access.load(values[kMoment] + i);
  }
  template <int kMoments, class Access>
  HWY_INLINE void store(Access access, Lane first, Lane second, std::int64_t i) const {
    const Bits bits = codec::random_bits(random, element + static_cast<std::uint32_t>(i));
    access.store_low(codec::rounded<0>(first, bits), values[0] + i);
    if constexpr (kMoments > 1) access.store_low(codec::rounded<1>(second, bits), values[1] + i);
  }
};

/// Moments of one block: decoded from codes, left in fp32.
struct DecodedBlock {
  const std::uint8_t* codes[2];
  Lane scales[2];
  float* values[2];

  template <int kMoment, class Access>
  HWY_INLINE Lane load(Access /*all of a block*/, std::int64_t i) const {
    using Moment = std::conditional_t<kMoment == 0, codec::FirstMoment, codec::SecondMoment>;
    return codec::decoded<Moment>(codes[kMoment] + i, scales[kMoment]);
  }
  template <int kMoments, class Access>
  HWY_INLINE void store(Access /*all of a block*/, Lane first, Lane second, std::int64_t i) const {
    hn::StoreU(first, F(), values[0] + i);
    if constexpr (kMoments > 1) hn::StoreU(second, F(), values[1] + i);
  }
};

constexpr std::int64_t kPiece = 1024;  // elements: two moments take 8 KiB
static_assert(kPiece % kMomentBlock == 0);

/// `memory` from element `begin` on.
inline UpdateMemory memory_from(UpdateMemory memory, std::int64_t begin) {
  memory.master += begin;
  memory.gradient =
      static_cast<const std::byte*>(memory.gradient) + begin * size_of(memory.gradient_dtype);
  if (memory.compute != nullptr) {
    memory.compute =
        static_cast<std::byte*>(memory.compute) + begin * size_of(memory.compute_dtype);
  }
  return memory;
}

/// The first `count` elements, up to kPiece, of memory and codes.
template <class Rule>
void update_coded_piece(const Rule& rule, const UpdateMemory& memory,
                        std::uint8_t* const (&codes)[2], float* const (&scales)[2],
                        std::int64_t count) {
  alignas(64) float values[2][kPiece + 16];  // not 4 KiB apart, which caches take for one place
  const std::int64_t blocks = (count + kMomentBlock - 1) / kMomentBlock;
  if (count < blocks * kMomentBlock) std::memset(values, 0, sizeof values);
  for (std::int64_t begin = 0; begin < count; begin += kMomentBlock) {
    DecodedBlock block;
    for (int i = 0; i < Rule::kMoments; ++i) {
      block.codes[i] = codes[i] + begin;
      block.scales[i] = hn::Set(F(), scales[i][begin / kMomentBlock]);
      block.values[i] = values[i] + begin;
    }
    update_range(rule, memory_from(memory, begin), block, 0, std::min(kMomentBlock, count - begin));
  }
  codec::encode_whole<codec::FirstMoment>(values[0], blocks, codes[0], scales[0]);
  if constexpr (Rule::kMoments > 1)
    codec::encode_whole<codec::SecondMoment>(values[1], blocks, codes[1], scales[1]);
}

/// The same with codes that end within a block: works on a copy with zeros behind them.
template <class Rule>
void update_coded_end(const Rule& rule, const UpdateMemory& memory, std::uint8_t* const (&codes)[2],
                      float* const (&scales)[2], std::int64_t count) {
  std::uint8_t padded[2][kPiece] = {};
  for (int i = 0; i < Rule::kMoments; ++i)
    std::memcpy(padded[i], codes[i], static_cast<std::size_t>(count));
  update_coded_piece(rule, memory, {padded[0], padded[1]}, scales, count);
  for (int i = 0; i < Rule::kMoments; ++i)
    std::memcpy(codes[i], padded[i], static_cast<std::size_t>(count));
}

template <class Rule>
void update_coded(const Rule& rule, const UpdateMemory& memory, const SmallMoments& small,
                  std::int64_t begin, std::int64_t end) {
  for (; begin < end; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, end - begin);
    std::uint8_t* codes[2] = {};
    float* scales[2] = {};
    for (int i = 0; i < Rule::kMoments; ++i) {
      codes[i] = static_cast<std::uint8_t*>(small.values[i]) + begin;
      scales[i] = small.scales[i] + begin / kMomentBlock;
    }
    const auto update =
        count % kMomentBlock == 0 ? update_coded_piece<Rule> : update_coded_end<Rule>;
    update(rule, memory_from(memory, begin), codes, scales, count);
  }
}

template <class Rule>
void update_small(const Rule& rule, const UpdateMemory& memory, const SmallMoments& small,
                  std::int64_t begin, std::int64_t end) {
  if (small.format == MomentFormat::eight_bit) return update_coded(rule, memory, small, begin, end);
  for_each_rounding_run(
      small.elements, small.step, begin, end - begin, [&](const RoundingRun& run) {
        const Bf16Moments moments{
            {static_cast<bfloat16*>(small.values[0]), static_cast<bfloat16*>(small.values[1])},
            {run.keys, {}},
            run.element - static_cast<std::uint32_t>(run.begin)};
        update_range(rule, memory, moments, run.begin, run.begin + run.count);
      });
}

void small_adamw(const AdamConstants& constants, const UpdateMemory& memory,
                 const SmallMoments& small, std::int64_t begin, std::int64_t end) {
  update_small(AdamWRule<VectorOps>{constants, {}}, memory, small, begin, end);
}

void small_adam(const AdamConstants& constants, const UpdateMemory& memory,
                const SmallMoments& small, std::int64_t begin, std::int64_t end) {
  update_small(AdamRule<VectorOps>{constants, {}}, memory, small, begin, end);
}

void small_sgd(const SgdConstants& constants, const UpdateMemory& memory, const SmallMoments& small,
               std::int64_t begin, std::int64_t end) {
  update_small(MomentumRule<VectorOps>{constants, {}}, memory, small, begin, end);
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {

HWY_EXPORT(small_adamw);
HWY_EXPORT(small_adam);
HWY_EXPORT(small_sgd);

void update_small_adamw(const AdamConstants& constants, const UpdateMemory& memory,
                        const SmallMoments& moments, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(small_adamw)(constants, memory, moments, begin, end);
}

void update_small_adam(const AdamConstants& constants, const UpdateMemory& memory,
                       const SmallMoments& moments, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(small_adam)(constants, memory, moments, begin, end);
}

void update_small_sgd(const SgdConstants& constants, const UpdateMemory& memory,
                      const SmallMoments& moments, std::int64_t begin, std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(small_sgd)(constants, memory, moments, begin, end);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
