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

/// sum = x + delta where there is a delta; returns the row that is to be normalised.
template <typename T>
const T* residual_row(const NormRows& o, std::int64_t row) {
  const auto columns = static_cast<std::size_t>(o.columns);
  const T* x = row_of<T>(o.x, row, o.columns);
  if (o.delta.empty()) return x;
  const hn::ScalableTag<float> d;
  const T* delta = row_of<T>(o.delta, row, o.columns);
  T* sum = row_of<T>(o.sum, row, o.columns);
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    store(d, hn::Add(load(d, x + i, lanes), load(d, delta + i, lanes)), sum + i, lanes);
  });
  return sum;
}

template <typename T>
void normalise_row(const NormRows& o, std::int64_t row, const T* x, const float* statistics) {
  const hn::ScalableTag<float> d;
  const T* gamma = row_of<T>(o.gamma, 0, o.columns);
  const T* beta = row_of<T>(o.beta, 0, o.columns);
  T* y = row_of<T>(o.y, row, o.columns);
  const auto mean = hn::Set(d, statistics[0]);
  const auto rstd = hn::Set(d, statistics[1]);
  for_lanes(d, static_cast<std::size_t>(o.columns), [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto normed = hn::Mul(hn::Sub(load(d, x + i, lanes), mean), rstd);
    store(d, hn::MulAdd(normed, load(d, gamma + i, lanes), load(d, beta + i, lanes)), y + i, lanes);
  });
}

template <typename T>
void forward(const NormRows& o, Rows rows) {
  const hn::ScalableTag<float> d;
  const auto columns = static_cast<std::size_t>(o.columns);
  const float inverse = 1.0F / static_cast<float>(o.columns);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = residual_row<T>(o, row);
    auto sum = hn::Zero(d);
    for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
      sum = hn::Add(sum, load(d, x + i, lanes));
    });
    float* statistics = row_of<float>(o.statistics, row, 2);
    statistics[0] = sum_lanes(d, sum) * inverse;
    const auto mean = hn::Set(d, statistics[0]);
    auto squares = hn::Zero(d);
    for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto off = only(d, hn::Sub(load(d, x + i, lanes), mean), hn::Zero(d), lanes);
      squares = hn::MulAdd(off, off, squares);
    });
    const auto variance = hn::Set(d, sum_lanes(d, squares) * inverse + kNormEpsilon);
    statistics[1] = hn::GetLane(hn::Div(hn::Set(d, 1.0F), hn::Sqrt(variance)));
    normalise_row<T>(o, row, x, statistics);
  }
}

template <typename T>
void backward(const NormBackwardRows& o, Rows rows, float* dgamma, float* dbeta) {
  const hn::ScalableTag<float> d;
  const auto columns = static_cast<std::size_t>(o.columns);
  const float inverse = 1.0F / static_cast<float>(o.columns);
  const T* gamma = row_of<T>(o.gamma, 0, o.columns);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = row_of<T>(o.x, row, o.columns);
    const T* dy = row_of<T>(o.dy, row, o.columns);
    T* dx = row_of<T>(o.dx, row, o.columns);
    const float* statistics = row_of<float>(o.statistics, row, 2);
    const auto mean = hn::Set(d, statistics[0]);
    const auto rstd = hn::Set(d, statistics[1]);
    auto sum = hn::Zero(d);
    auto product = hn::Zero(d);
    for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
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
    for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto normed = hn::Mul(hn::Sub(load(d, x + i, lanes), mean), rstd);
      const auto scaled = hn::Mul(load(d, dy + i, lanes), load(d, gamma + i, lanes));
      const auto inner = hn::NegMulAdd(normed, mean_product, hn::Sub(scaled, mean_scaled));
      store(d, hn::MulAdd(inner, rstd, load(d, dx + i, lanes)), dx + i, lanes);
    });
  }
}

void norm_forward(const NormRows& o, Rows rows) {
  with_type(o.x.dtype(), [&](auto type) { forward<typename decltype(type)::type>(o, rows); });
}

void norm_apply(const NormRows& o, Rows rows) {
  with_type(o.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      normalise_row<T>(o, row, row_of<T>(o.x, row, o.columns), row_of<float>(o.statistics, row, 2));
    }
  });
}

void norm_backward(const NormBackwardRows& o, Rows rows, float* dgamma, float* dbeta) {
  with_type(o.x.dtype(),
            [&](auto type) { backward<typename decltype(type)::type>(o, rows, dgamma, dbeta); });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_apply);
HWY_EXPORT(norm_backward);

void layer_norm_forward_rows(const NormRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(norm_forward)(operands, rows);
}

void layer_norm_apply_rows(const NormRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(norm_apply)(operands, rows);
}

void layer_norm_backward_rows(const NormBackwardRows& operands, Rows rows, std::span<float> dgamma,
                              std::span<float> dbeta) {
  HWY_DYNAMIC_DISPATCH(norm_backward)(operands, rows, dgamma.data(), dbeta.data());
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
