// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Per-target vector loads and stores of fp32, bf16 and fp16 elements as fp32 lanes, bit for bit the
// conversions of base/half.h. Included inside Highway's foreach_target mechanism, once per target.

#if defined(ZERO_DEVICE_CPU_VECTOR_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_DEVICE_CPU_VECTOR_IO_INL_H_
#undef ZERO_DEVICE_CPU_VECTOR_IO_INL_H_
#else
#define ZERO_DEVICE_CPU_VECTOR_IO_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes(d) elements from `from`, which needs only the alignment of one element.
template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float* from) {
  return hn::LoadU(d, from);
}

/// The 16-bit elements at `from`, zero-extended.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> load_halves([[maybe_unused]] D d, const void* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  return hn::PromoteTo(du, hn::LoadU(d16, static_cast<const std::uint16_t*>(from)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const bfloat16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(load_halves(d, from)));
}

/// By integer arithmetic, for any instruction set.
template <class D>
HWY_INLINE hn::Vec<D> widen_by_integers(D d, const float16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = load_halves(d, from);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000U)));
  const auto mantissa = hn::And(bits, hn::Set(du, 0x3ffU));
  const auto shifted = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffU)));
  const auto exponent = hn::And(shifted, hn::Set(du, 0x0f800000U));
  const auto normal = hn::Add(shifted, hn::Set(du, 112U << 23));
  const auto special = hn::Add(shifted, hn::Set(du, 224U << 23));  // infinity, NaN
  const auto subnormal =
      hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(di, mantissa)), hn::Set(d, 0x1p-24F)));
  auto value = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, normal);
  value = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x0f800000U)), special, value);
  return hn::BitCast(d, hn::Or(value, sign));
}

// F16C converts fp16 in one instruction each way, but quiets NaNs, and keeps some of their bits.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 && !defined(HWY_DISABLE_F16C)
#define ZERO_HAS_F16C 1
#else
#define ZERO_HAS_F16C 0
#endif

template <class D>
HWY_INLINE hn::Vec<D> load_floats(D d, const float16* from) {
#if ZERO_HAS_F16C
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  const auto value = hn::PromoteTo(d, hn::BitCast(df16, bits));
  if (HWY_LIKELY(hn::AllFalse(d, hn::IsNaN(value)))) return value;
#endif
  return widen_by_integers(d, from);
}

/// Stores the low half of each lane.
template <class D, class V>
HWY_INLINE void store_halves([[maybe_unused]] D d, V bits, void* to) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, bits)), d16, static_cast<std::uint16_t*>(to));
}

/// The same of two vectors, in a row.
template <class D, class V>
HWY_INLINE void store_halves([[maybe_unused]] D d, V first, V second, void* to) {
#if HWY_TARGET == HWY_SCALAR
  store_halves(d, first, to);
  store_halves(d, second, static_cast<std::uint16_t*>(to) + 1);
#else
  const hn::Repartition<std::uint16_t, D> d16;
  hn::StoreU(hn::ConcatEven(d16, hn::BitCast(d16, second), hn::BitCast(d16, first)), d16,
             static_cast<std::uint16_t*>(to));
#endif
}

/// Rounds Lanes(d) values to nearest even and stores them; returns what was stored.
template <class D>
HWY_INLINE hn::Vec<D> store_rounded(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
  return value;
}

/// The bits of values whose high halves are those rounded to bf16.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> rounded_high(D /*d*/, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000U));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
}

template <class D>
HWY_INLINE hn::Vec<D> store_rounded(D d, hn::Vec<D> value, bfloat16* to) {
  const auto halves = hn::ShiftRight<16>(rounded_high(d, value));
  store_halves(d, halves, to);
  return hn::BitCast(d, hn::ShiftLeft<16>(halves));
}

/// The same of two vectors, in a row.
template <class D>
HWY_INLINE void store_rounded(D d, hn::Vec<D> first, hn::Vec<D> second, bfloat16* to) {
#if HWY_TARGET == HWY_SCALAR
  store_rounded(d, first, to);
  store_rounded(d, second, to + 1);
#else
  const hn::Repartition<std::uint16_t, D> d16;
  hn::StoreU(hn::ConcatOdd(d16, hn::BitCast(d16, rounded_high(d, second)),
                           hn::BitCast(d16, rounded_high(d, first))),
             d16, reinterpret_cast<std::uint16_t*>(to));
#endif
}

#if ZERO_HAS_F16C
template <class D>
HWY_INLINE hn::Vec<D> store_rounded(D d, hn::Vec<D> value, float16* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  const auto quiet = hn::CopySign(hn::BitCast(d, hn::Set(du, 0x7fc00000U)), value);
  const auto halves = hn::DemoteTo(df16, hn::IfThenElse(hn::IsNaN(value), quiet, value));
  hn::StoreU(hn::BitCast(d16, halves), d16, reinterpret_cast<std::uint16_t*>(to));
  return hn::PromoteTo(d, halves);
}
#else
template <class D>
HWY_INLINE hn::Vec<D> store_rounded(D d, hn::Vec<D> value, float16* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000U));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1U));
  const auto rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xfffU)));
  const auto normal = hn::Sub(hn::ShiftRight<13>(rounded), hn::Set(du, 112U << 10));
  // Below 2^-14, adding 0.5 rounds at 2^-24.
  const auto shifted = hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F)));
  const auto subnormal = hn::Sub(shifted, hn::Set(du, 0x3f000000U));
  const auto compared = hn::BitCast(di, magnitude);  // never negative: signed comparisons will do
  const auto is_small = hn::RebindMask(du, hn::Lt(compared, hn::Set(di, 0x38800000)));
  const auto is_large = hn::RebindMask(du, hn::Gt(compared, hn::Set(di, 0x477fefff)));
  const auto is_nan = hn::RebindMask(du, hn::Gt(compared, hn::Set(di, 0x7f800000)));
  auto halves = hn::IfThenElse(is_small, subnormal, normal);
  halves = hn::IfThenElse(is_large, hn::Set(du, 0x7c00U), halves);
  halves = hn::IfThenElse(is_nan, hn::Set(du, 0x7e00U), halves);
  store_halves(d, hn::Or(halves, sign), to);
  return load_floats(d, to);
}
#endif
#undef ZERO_HAS_F16C

/// load_floats of the first `count` < Lanes(d) elements, zeros in the other lanes.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_some_floats(D d, const T* from, std::size_t count) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, count * sizeof(T));
  return load_floats(d, padded);
}

/// store_rounded of the first `count` < Lanes(d) lanes.
template <class D, typename T>
HWY_INLINE hn::Vec<D> store_some_rounded(D d, hn::Vec<D> value, T* to, std::size_t count) {
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)];
  const hn::Vec<D> stored = store_rounded(d, value, padded);
  std::memcpy(to, padded, count * sizeof(T));
  return stored;
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_DEVICE_CPU_VECTOR_IO_INL_H_
