// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/cpu/small_moments.cpp"
#include <hwy/foreach_target.h>
// Highway requires this include after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "optim/cpu/moment_lanes-inl.h"
#include "optim/cpu/small_moments.h"
#include "optim/cpu/sweep-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

template <class Moment>
void decode_whole(const std::uint8_t* codes, const float* scales, std::int64_t blocks, float* out) {
  const codec::D d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < blocks * kMomentBlock; i += lanes) {
    const auto scale = hn::Set(d, scales[i / kMomentBlock]);
    hn::StoreU(codec::decoded<Moment>(codes + i, scale), d, out + i);
  }
}

/// Whole blocks.
void decode_blocks(int moment, const std::uint8_t* codes, const float* scales, std::int64_t blocks,
                   float* out) {
  if (moment == 0) return decode_whole<codec::FirstMoment>(codes, scales, blocks, out);
  decode_whole<codec::SecondMoment>(codes, scales, blocks, out);
}

void encode_blocks(int moment, const float* values, std::int64_t blocks, std::uint8_t* codes,
                   float* scales) {
  if (moment == 0) return codec::encode_whole<codec::FirstMoment>(values, blocks, codes, scales);
  codec::encode_whole<codec::SecondMoment>(values, blocks, codes, scales);
}

/// Both moments in bf16; an element's two draws are halves of one word.
struct Bf16Moments {
  bfloat16* values[2];
  codec::Random random;
  std::uint32_t element;  ///< of index 0

  Bf16Moments from(std::int64_t begin) const {
    Bf16Moments moments = *this;
    moments.values[0] += begin;
    if (moments.values[1] != nullptr) moments.values[1] += begin;
    moments.element += static_cast<std::uint32_t>(begin);
    return moments;
  }
  template <int kMoment, class Access>
  HWY_INLINE auto load(Access access, std::int64_t i) const {
    return access.load(values[kMoment] + i);
  }
  template <int kMoments, class Access, class V>
  HWY_INLINE void store(Access access, V first, V second, std::int64_t i) const {
    const auto bits = access.of_each([&](std::int64_t offset) HWY_ATTR {
      return codec::random_bits(random, element + static_cast<std::uint32_t>(i + offset));
    });
    access.store_low(rounded<0>(first, bits), values[0] + i);
    if constexpr (kMoments > 1) access.store_low(rounded<1>(second, bits), values[1] + i);
  }

 private:
  template <int kMoment>
  static HWY_INLINE Bits rounded(Lane value, Bits bits) {
    return codec::rounded<kMoment>(value, bits);
  }
  template <int kMoment>
  static HWY_INLINE Two<Bits> rounded(Two<Lane> value, Two<Bits> bits) {
    return {rounded<kMoment>(value.a, bits.a), rounded<kMoment>(value.b, bits.b)};
  }
};

/// Moments of one block: decoded from codes, left in fp32.
struct DecodedBlock {
  const std::uint8_t* codes[2];
  Lane scales[2];
  float* values[2];

  template <int kMoment, class Access>
  HWY_INLINE auto load(Access access, std::int64_t i) const {
    using Moment = std::conditional_t<kMoment == 0, codec::FirstMoment, codec::SecondMoment>;
    return access.of_each([&](std::int64_t offset) HWY_ATTR {
      return codec::decoded<Moment>(codes[kMoment] + i + offset, scales[kMoment]);
    });
  }
  template <int kMoments, class Access, class V>
  HWY_INLINE void store(Access /*whole vectors*/, V first, V second, std::int64_t i) const {
    const std::conditional_t<std::is_same_v<V, Lane>, All, Pair> whole;
    whole.store(first, values[0] + i);
    if constexpr (kMoments > 1) whole.store(second, values[1] + i);
  }
};

/// A block whose moments wait in fp32 for their codes.
struct WaitingBlock {
  const float* values[2];
  float inverse[2];  ///< 1 over the scales
  std::uint8_t* codes[2];

  /// codec::kEncoded vectors from element i on.
  template <int kMoments>
  HWY_INLINE void encode(std::int64_t i) const {
    codec::encode<codec::FirstMoment>(values[0] + i, hn::Set(F(), inverse[0]), codes[0] + i);
    if constexpr (kMoments > 1)
      codec::encode<codec::SecondMoment>(values[1] + i, hn::Set(F(), inverse[1]), codes[1] + i);
  }
};

/// Updates a whole block and encodes the one before. A vector takes some 60 vector operations,
/// among them a long chain with a root and a division, and a processor looks ahead over about
/// two vectors: so the chain is cut in two, and other work stands between.
template <class Rule>
struct BlockUpdate {
  Rule rule;
  Elements memory;
  DecodedBlock block;
  WaitingBlock before;

  HWY_INLINE void run() const {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(F()));
    for (std::int64_t i = 0; i < kMomentBlock; i += 4 * lanes) {
#pragma GCC unroll 2
      for (std::int64_t k = 0; k < 4; k += 2) {
        move(i + k * lanes);
        if (k > 0 || i > 0) step(i + (k - 2) * lanes);
        if (k % codec::kEncoded == 0) before.encode<Rule::kMoments>(i + k * lanes);
        if (codec::kEncoded == 1) before.encode<Rule::kMoments>(i + (k + 1) * lanes);
      }
    }
    step(kMomentBlock - 2 * lanes);
  }

 private:
  HWY_INLINE void move(std::int64_t i) const {
    const Pair pair;
    auto first = block.load<0>(pair, i);
    auto second = first;
    if constexpr (Rule::kMoments > 1) second = block.load<1>(pair, i);
    rule.move(pair.load(memory.master + i), pair.load(memory.gradient + i), first, second);
    block.store<Rule::kMoments>(pair, first, second, i);
  }
  HWY_INLINE void step(std::int64_t i) const {
    const Pair pair;
    const auto first = pair.load(block.values[0] + i);
    auto second = first;
    if constexpr (Rule::kMoments > 1) second = pair.load(block.values[1] + i);
    pair.store(rule.stepped(pair.load(memory.master + i), first, second), memory.master + i);
  }
};

/// Updates blocks of coded moments one after another. A block's codes need its scale, so they are
/// made while the next block is updated; until then its moments wait in fp32, in the first cache.
template <class Rule>
class CodedUpdate {
 public:
  CodedUpdate(const Rule& rule, const UpdateMemory& memory, const SmallMoments& small)
      : rule_(rule), memory_(memory), small_(small) {}

  /// Elements [begin, end): blocks; the last may end early.
  void run(std::int64_t begin, std::int64_t end) {
    for (; begin + kMomentBlock <= end; begin += kMomentBlock) {
      const Codes codes = codes_of(begin);
      const DecodedBlock block = decoded(codes, begin);
      const BlockUpdate<Rule> update{rule_, elements_of(memory_, begin, kMomentBlock, gradient_),
                                     block, waiting_};
      update.run();
      store_copy(memory_, begin, kMomentBlock);
      wait(codes, begin);
    }
    encode_waiting();
    if (begin < end) run_end(begin, end - begin);
  }

 private:
  using Codes = std::array<std::uint8_t*, 2>;
  static constexpr int kMoments = Rule::kMoments;

  Codes codes_of(std::int64_t begin) const {
    Codes codes{};
    for (std::size_t i = 0; i < kMoments; ++i)
      codes[i] = static_cast<std::uint8_t*>(small_.values[i]) + begin;
    return codes;
  }
  DecodedBlock decoded(const Codes& codes, std::int64_t begin) {
    DecodedBlock block;
    for (std::size_t i = 0; i < kMoments; ++i) {
      block.codes[i] = codes[i];
      block.scales[i] = hn::Set(F(), small_.scales[i][begin / kMomentBlock]);
      block.values[i] = values_[turn_][i];
    }
    return block;
  }
  /// The block whose moments are in values_[turn_] waits for its codes.
  void wait(const Codes& codes, std::int64_t begin) {
    for (std::size_t i = 0; i < kMoments; ++i) {
      float* const values = values_[turn_][i];
      const float scale = codec::scale_of(values);
      small_.scales[i][begin / kMomentBlock] = scale;
      waiting_.values[i] = values;
      waiting_.inverse[i] = codec::inverse_of(scale, values);
      waiting_.codes[i] = codes[i];
    }
    turn_ = 1 - turn_;
  }
  void encode_waiting() const {
    const auto step = codec::kEncoded * static_cast<std::int64_t>(hn::Lanes(F()));
    for (std::int64_t i = 0; i < kMomentBlock; i += step) waiting_.encode<kMoments>(i);
  }
  /// `count` elements of the last block: works on a copy of its codes with zeros behind them.
  void run_end(std::int64_t begin, std::int64_t count) {
    std::uint8_t padded[2][kMomentBlock] = {};
    const Codes codes = codes_of(begin);
    for (std::size_t i = 0; i < kMoments; ++i)
      std::memcpy(padded[i], codes[i], static_cast<std::size_t>(count));
    std::memset(values_[turn_], 0, sizeof values_[turn_]);
    const Codes copy{padded[0], padded[1]};
    const Sweep<Rule, DecodedBlock> sweep{rule_, elements_of(memory_, begin, count, gradient_),
                                          decoded(copy, begin)};
    sweep.run(count);
    store_copy(memory_, begin, count);
    wait(copy, begin);
    encode_waiting();
    for (std::size_t i = 0; i < kMoments; ++i)
      std::memcpy(codes[i], padded[i], static_cast<std::size_t>(count));
  }

  Rule rule_;
  UpdateMemory memory_;
  SmallMoments small_;
  alignas(64) float values_[2][2][kMomentBlock] = {};  // (turn, moment, element)
  std::size_t turn_ = 0;
  alignas(64) float gradient_[kMomentBlock];  // of the block, if in another dtype
  std::uint8_t nowhere_[kMomentBlock];
  // Before the first block: zeros, whose codes nobody reads.
  WaitingBlock waiting_{{values_[1][0], values_[1][1]}, {}, {nowhere_, nowhere_}};
};

template <class Rule>
void update_small(const Rule& rule, const UpdateMemory& memory, const SmallMoments& small,
                  std::int64_t begin, std::int64_t end) {
  if (small.format == MomentFormat::eight_bit)
    return CodedUpdate<Rule>(rule, memory, small).run(begin, end);
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

HWY_EXPORT(decode_blocks);
HWY_EXPORT(encode_blocks);
HWY_EXPORT(small_adamw);
HWY_EXPORT(small_adam);
HWY_EXPORT(small_sgd);

void decode_moment(const CodedMoment& from, float* out) {
  const auto* codes = static_cast<const std::uint8_t*>(from.codes.data());
  const auto* scales = static_cast<const float*>(from.scales.data());
  std::int64_t count = from.codes.count();
  const auto decode_part = [&](std::int64_t begin, std::int64_t length) {
    std::uint8_t padded[kMomentBlock] = {};
    float values[kMomentBlock];
    std::memcpy(padded, codes, static_cast<std::size_t>(length));
    HWY_DYNAMIC_DISPATCH(decode_blocks)(from.moment, padded, scales, 1, values);
    std::memcpy(out, values, static_cast<std::size_t>(length) * sizeof(float));
    codes += length;
    out += length;
    scales += (begin + length) / kMomentBlock;
    count -= length;
  };
  if (from.phase > 0 && count > 0)
    decode_part(from.phase, std::min(count, kMomentBlock - from.phase));
  const std::int64_t blocks = count / kMomentBlock;
  HWY_DYNAMIC_DISPATCH(decode_blocks)(from.moment, codes, scales, blocks, out);
  codes += blocks * kMomentBlock;
  out += blocks * kMomentBlock;
  scales += blocks;
  count -= blocks * kMomentBlock;
  if (count > 0) decode_part(0, count);
}

void encode_moment(const float* values, const CodedMoment& to) {
  auto* const codes = static_cast<std::uint8_t*>(to.codes.data());
  auto* const scales = static_cast<float*>(to.scales.data());
  const std::int64_t count = to.codes.count();
  const std::int64_t blocks = count / kMomentBlock;
  HWY_DYNAMIC_DISPATCH(encode_blocks)(to.moment, values, blocks, codes, scales);
  const auto left = static_cast<std::size_t>(count % kMomentBlock);
  if (left == 0) return;
  float padded[kMomentBlock] = {};
  std::uint8_t some[kMomentBlock];
  std::memcpy(padded, values + blocks * kMomentBlock, left * sizeof(float));
  HWY_DYNAMIC_DISPATCH(encode_blocks)(to.moment, padded, 1, some, scales + blocks);
  std::memcpy(codes + blocks * kMomentBlock, some, left);
}

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
