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
#include <type_traits>

#include "optim/dynamic_map.h"
#include "optim/moment_format.h"
#include "optim/rounding_keys.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

namespace codec {

#include "optim/moment_codes.inc"
#include "optim/moment_rounding.inc"

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
  HWY_INLINE Integer nearest(Lane value) const { return hn::NearestInt(value); }
  /// `one` where the value is above 0, and 0 elsewhere.
  HWY_INLINE Lane if_positive(Lane value, float one) const {
    return hn::IfThenElseZero(hn::Gt(value, hn::Zero(D())), set(one));
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

/// The bits of the largest magnitude; NaNs are above infinity.
HWY_INLINE std::int32_t largest_bits(const float* values) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  Integer largest = hn::Zero(DI());
  for (std::int64_t i = 0; i < kMomentBlock; i += lanes) {
    const Lane magnitude = hn::Abs(hn::LoadU(D(), values + i));
    largest = hn::Max(largest, hn::BitCast(DI(), magnitude));
  }
  return hn::GetLane(hn::MaxOfLanes(DI(), largest));
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

/// Stores four vectors of codes in a row.
template <typename Code>
HWY_INLINE void store_codes(Integer a, Integer b, Integer c, Integer d, std::uint8_t* to) {
#if HWY_TARGET == HWY_AVX2  // packed twice within 128 bits, then permuted once
  const __m256i ab = _mm256_packs_epi32(a.raw, b.raw);
  const __m256i cd = _mm256_packs_epi32(c.raw, d.raw);
  const __m256i all =
      std::is_signed_v<Code> ? _mm256_packs_epi16(ab, cd) : _mm256_packus_epi16(ab, cd);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(all, order));
#else
  const hn::Rebind<std::uint8_t, D> d8;
  for (const Integer codes : {a, b, c, d}) {
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(DU(), codes)), d8, to);
    to += hn::Lanes(D());
  }
#endif
}

template <class Moment>
HWY_INLINE void encode_block(const float* values, float scale, std::uint8_t* codes) {
  if (!(scale > 0)) {
    std::memset(codes, 0, kMomentBlock);
    return;
  }
  const Lane inverse = hn::Set(D(), 1.0F / scale);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  const auto encoded = [&](std::int64_t i) {
    return Moment().encode(hn::LoadU(D(), values + i), inverse);
  };
  for (std::int64_t i = 0; i < kMomentBlock; i += 4 * lanes) {
    store_codes<typename Moment::Code>(encoded(i), encoded(i + lanes), encoded(i + 2 * lanes),
                                       encoded(i + 3 * lanes), codes + i);
  }
}

/// Encodes whole blocks: all scales first, since each ends in a chain of dependent operations.
template <class Moment>
void encode_whole(const float* values, std::int64_t blocks, std::uint8_t* codes, float* scales) {
  for (std::int64_t i = 0; i < blocks; ++i) scales[i] = scale_of(values + i * kMomentBlock);
  for (std::int64_t i = 0; i < blocks; ++i)
    encode_block<Moment>(values + i * kMomentBlock, scales[i], codes + i * kMomentBlock);
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
