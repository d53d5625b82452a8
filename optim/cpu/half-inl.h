// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Loads and stores of fp32 vectors as fp32, bf16 or fp16: the arithmetic of base/half.h on vectors,
// in integer operations, so that every instruction set gives the same bits. In the manner of
// Highway's "-inl.h" files: included once per instruction set.
#if defined(ZERO_OPTIM_CPU_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_OPTIM_CPU_HALF_INL_H_
#undef ZERO_OPTIM_CPU_HALF_INL_H_
#else
#define ZERO_OPTIM_CPU_HALF_INL_H_
#endif

#include <hwy/highway.h>

#include "base/half.h"

HWY_BEFORE_NAMESPACE();
namespace zero {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Bits = hn::RebindToUnsigned<D>;

/// Sixteen-bit elements at `from`, each in a 32-bit lane.
template <class D>
HWY_INLINE hn::Vec<Bits<D>> load_16(D /*d*/, const void* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::PromoteTo(Bits<D>(), hn::LoadU(d16, static_cast<const std::uint16_t*>(from)));
}

/// The low halves of 32-bit lanes, whose high halves are zero.
template <class D>
HWY_INLINE void store_16(D d, hn::Vec<Bits<D>> bits, void* to) {
  const hn::Rebind<std::uint16_t, D> d16;
  const hn::RebindToSigned<D> di;
  static_cast<void>(d);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, bits)), d16, static_cast<std::uint16_t*>(to));
}

/// Lanes where a > b; both below 2^31.
template <class D>
HWY_INLINE hn::Mask<Bits<D>> above(D /*d*/, hn::Vec<Bits<D>> a, std::uint32_t b) {
  const Bits<D> du;
  const hn::RebindToSigned<D> di;
  return hn::RebindMask(du, hn::Gt(hn::BitCast(di, a), hn::Set(di, static_cast<std::int32_t>(b))));
}

template <class D>
HWY_INLINE hn::Vec<D> load_as_float(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_as_float(D d, const bfloat16* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(load_16(d, from)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_as_float(D d, const float16* from) {
  const Bits<D> du;
  const auto bits = load_16(d, from);
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000U)));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffU));
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  // The exponent's bias grows by 112: exact, for subnormals too.
  const auto finite = hn::BitCast(du, hn::Mul(hn::BitCast(d, shifted), hn::Set(d, 0x1p112F)));
  const auto special = hn::Or(shifted, hn::Set(du, 0x7f800000U));
  const auto value = hn::IfThenElse(above(d, magnitude, 0x7bffU), special, finite);
  return hn::BitCast(d, hn::Or(sign, value));
}

template <class D>
HWY_INLINE void store_from_float(D d, hn::Vec<D> value, bfloat16* to) {
  const Bits<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU))));
  const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40U));
  store_16(d, hn::IfThenElse(above(d, magnitude, 0x7f800000U), nan, rounded), to);
}

template <class D>
HWY_INLINE void store_from_float(D d, hn::Vec<D> value, float16* to) {
  const Bits<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000U));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffffffU));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1U));
  const auto normal =
      hn::Sub(hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xfffU)))),
              hn::Set(du, 112U << 10));
  // Below 2^-14 an fp32 addition does the rounding at 2^-24.
  const auto small = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F))),
                             hn::Set(du, 0x3f000000U));
  auto result = hn::IfThenElse(above(d, magnitude, 0x387fffffU), normal, small);
  result = hn::IfThenElse(above(d, magnitude, 0x477fefffU), hn::Set(du, 0x7c00U), result);
  result = hn::IfThenElse(above(d, magnitude, 0x7f800000U), hn::Set(du, 0x7e00U), result);
  store_16(d, hn::Or(sign, result), to);
}

}  // namespace HWY_NAMESPACE
}  // namespace zero
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
