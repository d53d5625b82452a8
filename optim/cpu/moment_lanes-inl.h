// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Per-target lanes of small moments: codes, scales, and stochastic rounding. Included inside
// Highway's foreach_target mechanism, once per target.

#if defined(ZERO_OPTIM_CPU_MOMENT_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_OPTIM_CPU_MOMENT_LANES_INL_H_
#undef ZERO_OPTIM_CPU_MOMENT_LANES_INL_H_
#else
#define ZERO_OPTIM_CPU_MOMENT_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "optim/update.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace codec {

#include "optim/small_moments.inc"

using D = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<D>;
using DU = hn::RebindToUnsigned<D>;
using Lane = hn::Vec<D>;
using Integer = hn::Vec<DI>;
using Word = hn::Vec<DU>;

struct CodeOps {
  HWY_INLINE Lane set(float value) const { return hn::Set(D(), value); }
  HWY_INLINE Lane abs(Lane value) const { return hn::Abs(value); }
  HWY_INLINE Lane max(Lane a, Lane b) const { return hn::Max(a, b); }
  HWY_INLINE Lane copy_sign(Lane magnitude, Lane sign) const {
    return hn::CopySignToAbs(magnitude, sign);
  }
  HWY_INLINE Lane to_float(Integer value) const { return hn::ConvertTo(D(), value); }
  // To nearest even: the sum has an integer of magnitudes up to 2^22 in its low bits. A conversion
  // of vectors would also handle integers that do not fit.
  static constexpr float kToBits = 0x1.8p23F;
  HWY_INLINE Integer nearest(Lane value) const {
    return hn::BitCast(DI(), hn::Add(value, set(kToBits)));
  }
  /// nearest(value - 1), for values from 1 on.
  HWY_INLINE Integer nearest_less_one(Lane value) const {
    return hn::BitCast(DI(), hn::Add(value, set(kToBits - 1)));
  }
  /// `y` where the value is above 0, and 0 elsewhere.
  HWY_INLINE Lane if_positive(Lane value, Lane y) const {
    return hn::IfThenElseZero(hn::Gt(value, hn::Zero(D())), y);
  }
  HWY_INLINE Word bits(Lane value) const { return hn::BitCast(DU(), value); }
  HWY_INLINE Lane as_float(Word bits) const { return hn::BitCast(D(), bits); }
  HWY_INLINE Word word(std::uint32_t value) const { return hn::Set(DU(), value); }
  template <int kBits>
  HWY_INLINE Word left(Word value) const {
    return hn::ShiftLeft<kBits>(value);
  }
  template <int kBits>
  HWY_INLINE Word right(Word value) const {
    return hn::ShiftRight<kBits>(value);
  }
};

struct WordOps {
  HWY_INLINE Word word(std::uint32_t value) const { return hn::Set(DU(), value); }
  template <int kBits>
  HWY_INLINE Word right(Word value) const {
    return hn::ShiftRight<kBits>(value);
  }
  /// For words below 2^31.
  HWY_INLINE Word select_less(Word a, Word b, Word yes, Word no) const {
    const auto less = hn::Lt(hn::BitCast(DI(), a), hn::BitCast(DI(), b));
    return hn::IfThenElse(hn::RebindMask(DU(), less), yes, no);
  }
};

struct FirstMoment : SignedCodes<CodeOps> {
  using Code = std::int8_t;
};
struct SecondMoment : UnsignedCodes<CodeOps> {
  using Code = std::uint8_t;
};

/// Lanes(D()) values of the codes from `codes` on.
template <class Moment>
HWY_INLINE Lane decoded(const std::uint8_t* codes, Lane scale) {
  using Code = typename Moment::Code;
  const hn::Rebind<Code, D> d8;
  const auto code = hn::LoadU(d8, reinterpret_cast<const Code*>(codes));
  return Moment().decode(hn::PromoteTo(DI(), code), scale);
}

/// The bits of the largest magnitude of a block; NaNs are above infinity. Four chains, since one of
/// all vectors would take as long as their latencies.
HWY_INLINE std::int32_t largest_bits(const float* values) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  const auto magnitude = [&](std::int64_t i) HWY_ATTR {
    return hn::BitCast(DI(), hn::Abs(hn::LoadU(D(), values + i)));
  };
  Integer a = magnitude(0);
  Integer b = magnitude(lanes);
  Integer c = magnitude(2 * lanes);
  Integer d = magnitude(3 * lanes);
  for (std::int64_t i = 4 * lanes; i < kMomentBlock; i += 4 * lanes) {
    a = hn::Max(a, magnitude(i));
    b = hn::Max(b, magnitude(i + lanes));
    c = hn::Max(c, magnitude(i + 2 * lanes));
    d = hn::Max(d, magnitude(i + 3 * lanes));
  }
  return hn::GetLane(hn::MaxOfLanes(DI(), hn::Max(hn::Max(a, b), hn::Max(c, d))));
}

/// The scale that is stored for a block.
HWY_INLINE float scale_of(const float* values) {
  const std::int32_t bits = largest_bits(values);
  float scale = 0;
  std::memcpy(&scale, &bits, sizeof scale);
  if (scale < kSmallestScale) return 0;
  return scale <= std::numeric_limits<float>::max() ? scale
                                                    : std::numeric_limits<float>::quiet_NaN();
}

/// The factor of a block's values before they are encoded. A block without a scale above 0 has
/// codes of 0: zeroes its values.
HWY_INLINE float inverse_of(float scale, float* values) {
  if (scale > 0) return 1.0F / scale;
  std::memset(values, 0, kMomentBlock * sizeof *values);
  return 0;
}

/// Vectors that encode() takes at a time.
inline constexpr std::int64_t kEncoded = HWY_TARGET == HWY_AVX2 ? 4 : 1;

/// Encodes kEncoded vectors of values.
template <class Moment>
HWY_INLINE void encode(const float* values, Lane inverse, std::uint8_t* codes) {
  const auto encoded = [&](std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
    const auto offset = i * static_cast<std::int64_t>(hn::Lanes(D()));
    return Moment().encode(hn::LoadU(D(), values + offset), inverse);
  };
#if HWY_TARGET == HWY_AVX2  // packed twice within 128 bits, then permuted once
  const auto low = [&](std::int64_t i) HWY_ATTR __attribute__((always_inline)) {
    return hn::And(encoded(i), hn::Set(DI(), 255)).raw;
  };
  const __m256i all =
      _mm256_packus_epi16(_mm256_packs_epi32(low(0), low(1)), _mm256_packs_epi32(low(2), low(3)));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_permutevar8x32_epi32(all, order));
#elif HWY_TARGET == HWY_AVX3  // one instruction
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(encoded(0).raw));
#else
  const hn::Rebind<std::uint8_t, D> d8;
  hn::StoreU(hn::TruncateTo(d8, hn::BitCast(DU(), encoded(0))), d8, codes);
#endif
}

/// Encodes whole blocks: all scales first, since each ends in a chain of dependent operations.
template <class Moment>
void encode_whole(const float* values, std::int64_t blocks, std::uint8_t* codes, float* scales) {
  const auto step = kEncoded * static_cast<std::int64_t>(hn::Lanes(D()));
  for (std::int64_t i = 0; i < blocks; ++i) scales[i] = scale_of(values + i * kMomentBlock);
  for (std::int64_t block = 0; block < blocks;
       ++block, values += kMomentBlock, codes += kMomentBlock) {
    if (!(scales[block] > 0)) {
      std::memset(codes, 0, kMomentBlock);
      continue;
    }
    const Lane inverse = hn::Set(D(), 1.0F / scales[block]);
    for (std::int64_t i = 0; i < kMomentBlock; i += step)
      encode<Moment>(values + i, inverse, codes + i);
  }
}

using Random = RandomBits<WordOps>;

/// The random bits of Lanes(D()) elements from `element` on.
HWY_INLINE Word random_bits(const Random& random, std::uint32_t element) {
  // Not Iota of a variable: its lanes would be made one by one.
  return random(hn::Add(hn::Iota(DU(), 0), hn::Set(DU(), element)));
}

/// The bits of values rounded to bf16, given the bits that their elements drew.
template <int kMoment>
HWY_INLINE Word rounded(Lane value, Word bits) {
  const Word some = kMoment == 0 ? hn::And(bits, hn::Set(DU(), 0xffffU)) : hn::ShiftRight<16>(bits);
  return round_stochastically(WordOps(), hn::BitCast(DU(), value), some);
}

}  // namespace codec
}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_OPTIM_CPU_MOMENT_LANES_INL_H_
