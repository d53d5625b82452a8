// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway wants it.
#include <hwy/highway.h>

#include "model/cpu/decoder_kernels.h"
#include "model/cpu/typed.h"
#include "model/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// 1 / (1 + e^-x): silu(x) = x * logistic(x).
template <class D>
HWY_INLINE hn::Vec<D> logistic(D d, hn::Vec<D> x) {
  return inverse_one_plus_exp2(d, hn::Mul(x, hn::Set(d, -kLog2E)));
}

template <typename T>
void gate_row(const T* x, T* y, std::size_t columns) {
  const hn::ScalableTag<float> d;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto gate = load(d, x + i, lanes);
    const auto silu = hn::Mul(gate, logistic(d, gate));
    store(d, hn::Mul(silu, load(d, x + columns + i, lanes)), y + i, lanes);
  });
}

template <typename T>
void gate_backward_row(T* x, T* dy, std::size_t columns) {
  const hn::ScalableTag<float> d;
  const auto one = hn::Set(d, 1.0F);
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto gate = load(d, x + i, lanes);
    const auto value = load(d, x + columns + i, lanes);
    const auto gradient = load(d, dy + i, lanes);
    const auto open = logistic(d, gate);
    const auto silu = hn::Mul(gate, open);
    // silu' = open + silu (1 - open)
    const auto slope = hn::MulAdd(silu, hn::Sub(one, open), open);
    store(d, hn::Mul(silu, value), dy + i, lanes);
    store(d, hn::Mul(gradient, silu), x + columns + i, lanes);
    store(d, hn::Mul(hn::Mul(gradient, value), slope), x + i, lanes);
  });
}

void swiglu(const View& x, const View& y, std::int64_t columns, Rows rows) {
  with_type(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      gate_row(row_of<T>(x, row, 2 * columns), row_of<T>(y, row, columns),
               static_cast<std::size_t>(columns));
    }
  });
}

void swiglu_backward(const View& x, const View& dy, std::int64_t columns, Rows rows) {
  with_type(x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      gate_backward_row(row_of<T>(x, row, 2 * columns), row_of<T>(dy, row, columns),
                        static_cast<std::size_t>(columns));
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(swiglu);
HWY_EXPORT(swiglu_backward);

void swiglu_rows(View x, View y, std::int64_t columns, Rows rows) {
  HWY_DYNAMIC_DISPATCH(swiglu)(x, y, columns, rows);
}

void swiglu_backward_rows(View x, View dy, std::int64_t columns, Rows rows) {
  HWY_DYNAMIC_DISPATCH(swiglu_backward)(x, dy, columns, rows);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
