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

template <typename T>
void gate_row(const T* x, T* y, std::size_t columns) {
  const hn::ScalableTag<float> d;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto gate = load(d, x + i, lanes);
    store(d, formulas(d).swiglu(gate, load(d, x + columns + i, lanes)), y + i, lanes);
  });
}

template <typename T>
void gate_backward_row(T* x, T* dy, std::size_t columns) {
  const hn::ScalableTag<float> d;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    auto gate = load(d, x + i, lanes);
    auto value = load(d, x + columns + i, lanes);
    auto output = load(d, dy + i, lanes);
    formulas(d).swiglu_backward(gate, value, output);
    store(d, output, dy + i, lanes);
    store(d, value, x + columns + i, lanes);
    store(d, gate, x + i, lanes);
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
