// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Per-target loops, exponentials and sums of the layers' kernels, on the loads and stores of
// device/cpu/vector_io-inl.h. Included inside Highway's foreach_target mechanism, once per target.

#if defined(ZERO_MODEL_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_MODEL_CPU_VECTOR_MATH_INL_H_
#undef ZERO_MODEL_CPU_VECTOR_MATH_INL_H_
#else
#define ZERO_MODEL_CPU_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "device/cpu/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// A whole vector, or its first `count` lanes.
struct AllLanes {};
struct SomeLanes {
  std::size_t count;
};

template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, AllLanes) {
  return load_floats(d, from);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, SomeLanes lanes) {
  return load_some_floats(d, from, lanes.count);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> store(D d, hn::Vec<D> value, T* to, AllLanes) {
  return store_rounded(d, value, to);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> store(D d, hn::Vec<D> value, T* to, SomeLanes lanes) {
  return store_some_rounded(d, value, to, lanes.count);
}

/// Lanes outside `lanes` become `other`.
template <class D>
HWY_INLINE hn::Vec<D> only(D, hn::Vec<D> value, hn::Vec<D>, AllLanes) {
  return value;
}
template <class D>
HWY_INLINE hn::Vec<D> only(D d, hn::Vec<D> value, hn::Vec<D> other, SomeLanes lanes) {
  return hn::IfThenElse(hn::FirstN(d, lanes.count), value, other);
}

/// body(i, AllLanes) for every whole vector of [0, count), then body(i, SomeLanes) for the rest.
template <class D, class Body>
HWY_INLINE void for_lanes(D d, std::size_t count, const Body& body) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, AllLanes{});
  if (i < count) body(i, SomeLanes{count - i});
}

/// 2^x to about 2 ulp, for x <= 127; 0 below -126; NaN stays.
template <class D>
HWY_INLINE hn::Vec<D> exp2(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  // Added, it rounds to whole numbers and leaves them in the lowest bits, biased as exponents are.
  const auto rounder = hn::Set(d, 0x1.8p23F + 127.0F);
  const auto rounded = hn::Add(x, rounder);
  const auto f = hn::Sub(x, hn::Sub(rounded, rounder));
  // f in [-0.5, 0.5]: a Chebyshev interpolant of degree 6
  auto p = hn::MulAdd(hn::Set(d, 0.00015461444854736328F), f, hn::Set(d, 0.0013400427997112274F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.009618056938052177F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.05550327152013779F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.24022650718688965F));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931471824645996F));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0F));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, rounded)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0F)), hn::Mul(p, power));
}

inline constexpr float kLog2E = 1.4426950408889634F;

/// 1 / (1 + 2^x), for any x; NaN stays.
template <class D>
HWY_INLINE hn::Vec<D> inverse_one_plus_exp2(D d, hn::Vec<D> x) {
  // Written so that a NaN stays one; 2^80 + 1 is 2^80 already.
  const auto exponent = hn::IfThenElse(hn::Gt(x, hn::Set(d, 80.0F)), hn::Set(d, 80.0F), x);
  const auto one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, exp2(d, exponent)));
}

/// A sum of lanes in a fixed order.
template <class D>
HWY_INLINE float sum_lanes(D d, hn::Vec<D> value) {
  return hn::GetLane(hn::SumOfLanes(d, value));
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_MODEL_CPU_VECTOR_MATH_INL_H_
