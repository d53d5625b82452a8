// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Per-target loops, exponentials and sums of the layers' kernels, on the loads and stores of
// device/cpu/vector_io-inl.h. Included inside Highway's foreach_target mechanism, once per target.

#if defined(ZERO_OPS_CPU_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZERO_OPS_CPU_VECTOR_MATH_INL_H_
#undef ZERO_OPS_CPU_VECTOR_MATH_INL_H_
#else
#define ZERO_OPS_CPU_VECTOR_MATH_INL_H_
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

/// Calls body(i, AllLanes) for every whole vector of [0, count), then body(i, SomeLanes) for the
/// rest.
template <class D, class Body>
HWY_INLINE void for_lanes(D d, std::size_t count, const Body& body) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, AllLanes{});
  if (i < count) body(i, SomeLanes{count - i});
}

/// sum = a + b, rounded once; sum may be the memory of either.
template <typename A, typename B, typename C>
void add_rows(const A* a, const B* b, C* sum, std::size_t count) {
  const hn::ScalableTag<float> d;
  for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, a + i, lanes), load(d, b + i, lanes)), sum + i, lanes);
  });
}

#include "ops/row_formulas.inc"

/// The lanes of RowFormulas.
template <class D>
struct VectorLanes {
  using Lane = hn::Vec<D>;
  HWY_INLINE Lane set(float value) const { return hn::Set(D(), value); }
  HWY_INLINE Lane mul_add(Lane a, Lane b, Lane c) const { return hn::MulAdd(a, b, c); }
  HWY_INLINE Lane neg_mul_add(Lane a, Lane b, Lane c) const { return hn::NegMulAdd(a, b, c); }
  HWY_INLINE Lane shift_to_exponent(Lane a) const {
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(D(), hn::ShiftLeft<23>(hn::BitCast(du, a)));
  }
  HWY_INLINE Lane zero_below(Lane a, Lane limit, Lane value) const {
    return hn::IfThenZeroElse(hn::Lt(a, limit), value);
  }
  HWY_INLINE Lane at_most(Lane a, Lane limit) const {
    return hn::IfThenElse(hn::Gt(a, limit), limit, a);
  }
  HWY_INLINE Lane inverse(Lane a) const { return hn::Div(set(1.0F), a); }
};
template <class D>
HWY_INLINE RowFormulas<VectorLanes<D>> formulas(D) {
  return {};
}

/// RowFormulas::exp2.
template <class D>
HWY_INLINE hn::Vec<D> exp2(D d, hn::Vec<D> x) {
  return formulas(d).exp2(x);
}

/// A sum of lanes in the order of Highway's SumOfLanes, which is one for a number of lanes.
template <class D>
HWY_INLINE float sum_lanes(D d, hn::Vec<D> value) {
  return hn::GetLane(hn::SumOfLanes(d, value));
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // ZERO_OPS_CPU_VECTOR_MATH_INL_H_
