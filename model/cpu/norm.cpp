// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway wants it.
#include <hwy/highway.h>

#include "model/cpu/row_kernels.h"
#include "model/cpu/typed.h"
#include "model/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

inline constexpr float kNormEpsilon = 1e-5F;

/// The row that is to be normalised: sum = x + delta if there is a delta.
template <typename T, typename Forward>
const T* residual_row(std::int64_t columns, const Forward& o, std::int64_t row) {
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
void normalise_row(std::int64_t columns, const LayerNormForward& o, std::int64_t row, const T* x) {
  const hn::ScalableTag<float> d;
  const T* gamma = row_of<T>(o.gamma, 0, columns);
  const T* beta = row_of<T>(o.beta, 0, columns);
  T* y = row_of<T>(o.y, row, columns);
  const float* statistics = row_of<float>(o.statistics, row, 2);
  const auto mean = hn::Set(d, statistics[0]);
  const auto rstd = hn::Set(d, statistics[1]);
  for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto normed = hn::Mul(hn::Sub(load(d, x + i, lanes), mean), rstd);
    store(d, hn::MulAdd(normed, load(d, gamma + i, lanes), load(d, beta + i, lanes)), y + i, lanes);
  });
}

template <typename T>
void forward(std::int64_t columns, const LayerNormForward& o, Rows rows) {
  const hn::ScalableTag<float> d;
  const auto count = static_cast<std::size_t>(columns);
  const float inverse = 1.0F / static_cast<float>(columns);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = residual_row<T>(columns, o, row);
    auto sum = hn::Zero(d);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      sum = hn::Add(sum, load(d, x + i, lanes));
    });
    float* statistics = row_of<float>(o.statistics, row, 2);
    statistics[0] = sum_lanes(d, sum) * inverse;
    const auto mean = hn::Set(d, statistics[0]);
    auto squares = hn::Zero(d);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto off = only(d, hn::Sub(load(d, x + i, lanes), mean), hn::Zero(d), lanes);
      squares = hn::MulAdd(off, off, squares);
    });
    const auto variance = hn::Set(d, sum_lanes(d, squares) * inverse + kNormEpsilon);
    statistics[1] = hn::GetLane(hn::Div(hn::Set(d, 1.0F), hn::Sqrt(variance)));
    normalise_row<T>(columns, o, row, x);
  }
}

template <typename T>
void backward(std::int64_t columns, const LayerNormBackward& o, Rows rows, float* dgamma,
              float* dbeta) {
  const hn::ScalableTag<float> d;
  const auto count = static_cast<std::size_t>(columns);
  const float inverse = 1.0F / static_cast<float>(columns);
  const T* gamma = row_of<T>(o.gamma, 0, columns);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = row_of<T>(o.x, row, columns);
    const T* dy = row_of<T>(o.dy, row, columns);
    T* dx = row_of<T>(o.dx, row, columns);
    const float* statistics = row_of<float>(o.statistics, row, 2);
    const auto mean = hn::Set(d, statistics[0]);
    const auto rstd = hn::Set(d, statistics[1]);
    auto sum = hn::Zero(d);
    auto product = hn::Zero(d);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto normed = hn::Mul(hn::Sub(load(d, x + i, lanes), mean), rstd);
      const auto gradient = load(d, dy + i, lanes);
      const auto scaled = hn::Mul(gradient, load(d, gamma + i, lanes));
      sum = hn::Add(sum, scaled);
      product = hn::MulAdd(scaled, normed, product);
      store(d, hn::MulAdd(gradient, normed, load(d, dgamma + i, lanes)), dgamma + i, lanes);
      store(d, hn::Add(gradient, load(d, dbeta + i, lanes)), dbeta + i, lanes);
    });
    const auto mean_scaled = hn::Set(d, sum_lanes(d, sum) * inverse);
    const auto mean_product = hn::Set(d, sum_lanes(d, product) * inverse);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto normed = hn::Mul(hn::Sub(load(d, x + i, lanes), mean), rstd);
      const auto scaled = hn::Mul(load(d, dy + i, lanes), load(d, gamma + i, lanes));
      const auto inner = hn::NegMulAdd(normed, mean_product, hn::Sub(scaled, mean_scaled));
      store(d, hn::MulAdd(inner, rstd, load(d, dx + i, lanes)), dx + i, lanes);
    });
  }
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

template <typename Forward>
void forward_rows(std::int64_t columns, const Forward& o, Rows rows) {
  with_type(o.x.dtype(),
            [&](auto type) { forward<typename decltype(type)::type>(columns, o, rows); });
}

template <typename Forward>
void apply_rows(std::int64_t columns, const Forward& o, Rows rows) {
  with_type(o.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      normalise_row<T>(columns, o, row, row_of<T>(o.x, row, columns));
    }
  });
}

void layer_norm_forward(std::int64_t columns, const LayerNormForward& o, Rows rows) {
  forward_rows(columns, o, rows);
}

void layer_norm_apply(std::int64_t columns, const LayerNormForward& o, Rows rows) {
  apply_rows(columns, o, rows);
}

void layer_norm_backward(std::int64_t columns, const LayerNormBackward& o, Rows rows, float* dgamma,
                         float* dbeta) {
  with_type(o.x.dtype(), [&](auto type) {
    backward<typename decltype(type)::type>(columns, o, rows, dgamma, dbeta);
  });
}

void rms_norm_forward(std::int64_t columns, const RmsNormForward& o, Rows rows) {
  forward_rows(columns, o, rows);
}

void rms_norm_apply(std::int64_t columns, const RmsNormForward& o, Rows rows) {
  apply_rows(columns, o, rows);
}

void rms_norm_backward(std::int64_t columns, const RmsNormBackward& o, Rows rows, float* dweight) {
  with_type(o.x.dtype(),
            [&](auto type) { backward<typename decltype(type)::type>(columns, o, rows, dweight); });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(layer_norm_forward);
HWY_EXPORT(layer_norm_apply);
HWY_EXPORT(layer_norm_backward);
HWY_EXPORT(rms_norm_forward);
HWY_EXPORT(rms_norm_apply);
HWY_EXPORT(rms_norm_backward);

void layer_norm_forward_rows(std::int64_t columns, const LayerNormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(layer_norm_forward)(columns, operands, rows);
}

void layer_norm_apply_rows(std::int64_t columns, const LayerNormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(layer_norm_apply)(columns, operands, rows);
}

void layer_norm_backward_rows(std::int64_t columns, const LayerNormBackward& operands, Rows rows,
                              std::span<float> dgamma, std::span<float> dbeta) {
  HWY_DYNAMIC_DISPATCH(layer_norm_backward)(columns, operands, rows, dgamma.data(), dbeta.data());
}

void rms_norm_forward_rows(std::int64_t columns, const RmsNormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(rms_norm_forward)(columns, operands, rows);
}

void rms_norm_apply_rows(std::int64_t columns, const RmsNormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(rms_norm_apply)(columns, operands, rows);
}

void rms_norm_backward_rows(std::int64_t columns, const RmsNormBackward& operands, Rows rows,
                            std::span<float> dweight) {
  HWY_DYNAMIC_DISPATCH(rms_norm_backward)(columns, operands, rows, dweight.data());
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
