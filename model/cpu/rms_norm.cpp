// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway wants it.
#include <hwy/highway.h>

#include "model/cpu/decoder_kernels.h"
#include "model/cpu/typed.h"
#include "model/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// The row that is to be normalised: sum = x + delta where there is a delta.
template <typename T>
const T* residual_row(std::int64_t columns, const RmsNormForward& o, std::int64_t row) {
  const T* x = row_of<T>(o.x, row, columns);
  if (o.delta.empty()) return x;
  const hn::ScalableTag<float> d;
  const T* delta = row_of<T>(o.delta, row, columns);
  T* sum = row_of<T>(o.sum, row, columns);
  for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, x + i, lanes), load(d, delta + i, lanes)), sum + i, lanes);
  });
  return sum;
}

template <typename T>
void normalise_row(std::int64_t columns, const RmsNormForward& o, std::int64_t row, const T* x) {
  const hn::ScalableTag<float> d;
  const T* weight = row_of<T>(o.weight, 0, columns);
  T* y = row_of<T>(o.y, row, columns);
  const auto scale = hn::Set(d, *row_of<float>(o.statistics, row, 1));
  for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto normed = hn::Mul(load(d, x + i, lanes), scale);
    store(d, hn::Mul(normed, load(d, weight + i, lanes)), y + i, lanes);
  });
}

template <typename T>
void forward(std::int64_t columns, const RmsNormForward& o, Rows rows) {
  const hn::ScalableTag<float> d;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = residual_row<T>(columns, o, row);
    auto squares = hn::Zero(d);
    for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto value = load(d, x + i, lanes);
      squares = hn::MulAdd(value, value, squares);
    });
    const auto mean = hn::Set(d, sum_lanes(d, squares) * inverse + o.epsilon);
    *row_of<float>(o.statistics, row, 1) = hn::GetLane(hn::Div(hn::Set(d, 1.0F), hn::Sqrt(mean)));
    normalise_row<T>(columns, o, row, x);
  }
}

template <typename T>
void backward(std::int64_t columns, const RmsNormBackward& o, Rows rows, float* dweight) {
  const hn::ScalableTag<float> d;
  const auto count = static_cast<std::size_t>(columns);
  const float inverse = 1.0F / static_cast<float>(columns);
  const T* weight = row_of<T>(o.weight, 0, columns);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = row_of<T>(o.x, row, columns);
    const T* dy = row_of<T>(o.dy, row, columns);
    T* dx = row_of<T>(o.dx, row, columns);
    const auto scale = hn::Set(d, *row_of<float>(o.statistics, row, 1));
    auto product = hn::Zero(d);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto normed = hn::Mul(load(d, x + i, lanes), scale);
      const auto gradient = load(d, dy + i, lanes);
      product = hn::MulAdd(hn::Mul(gradient, load(d, weight + i, lanes)), normed, product);
      store(d, hn::MulAdd(gradient, normed, load(d, dweight + i, lanes)), dweight + i, lanes);
    });
    const auto mean = hn::Set(d, sum_lanes(d, product) * inverse);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto normed = hn::Mul(load(d, x + i, lanes), scale);
      const auto scaled = hn::Mul(load(d, dy + i, lanes), load(d, weight + i, lanes));
      const auto inner = hn::NegMulAdd(normed, mean, scaled);
      store(d, hn::MulAdd(inner, scale, load(d, dx + i, lanes)), dx + i, lanes);
    });
  }
}

void rms_forward(std::int64_t columns, const RmsNormForward& o, Rows rows) {
  with_type(o.x.dtype(),
            [&](auto type) { forward<typename decltype(type)::type>(columns, o, rows); });
}

void rms_apply(std::int64_t columns, const RmsNormForward& o, Rows rows) {
  with_type(o.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      normalise_row<T>(columns, o, row, row_of<T>(o.x, row, columns));
    }
  });
}

void rms_backward(std::int64_t columns, const RmsNormBackward& o, Rows rows, float* dweight) {
  with_type(o.x.dtype(),
            [&](auto type) { backward<typename decltype(type)::type>(columns, o, rows, dweight); });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(rms_forward);
HWY_EXPORT(rms_apply);
HWY_EXPORT(rms_backward);

void rms_norm_forward_rows(std::int64_t columns, const RmsNormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(rms_forward)(columns, operands, rows);
}

void rms_norm_apply_rows(std::int64_t columns, const RmsNormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(rms_apply)(columns, operands, rows);
}

void rms_norm_backward_rows(std::int64_t columns, const RmsNormBackward& operands, Rows rows,
                            std::span<float> dweight) {
  HWY_DYNAMIC_DISPATCH(rms_backward)(columns, operands, rows, dweight.data());
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
