// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <type_traits>

#include "model/cpu/row_kernels.h"
#include "model/cpu/typed.h"
#include "model/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// fp32 figures per row.
template <NormKind kind>
inline constexpr std::int64_t kStatistics = kind == NormKind::layer ? 2 : 1;

/// The row to normalise: sum = x + delta if there is a delta.
template <typename T>
const T* residual_row(std::int64_t columns, const NormForward& o, std::int64_t row) {
  const T* x = row_of<T>(o.x, row, columns);
  if (o.delta.empty()) return x;
  T* sum = row_of<T>(o.sum, row, columns);
  add_rows(x, row_of<T>(o.delta, row, columns), sum, static_cast<std::size_t>(columns));
  return sum;
}

/// `mean` is unused for an RMS norm.
template <NormKind kind, typename V>
HWY_INLINE V normed(V x, V mean, V scale) {
  if constexpr (kind == NormKind::layer) x = hn::Sub(x, mean);
  return hn::Mul(x, scale);
}

template <NormKind kind, typename T>
void normalise_row(std::int64_t columns, const NormForward& o, std::int64_t row, const T* x) {
  const hn::ScalableTag<float> d;
  const T* weight = row_of<T>(o.weight, 0, columns);
  const T* bias = row_of<T>(o.bias, 0, columns);
  T* y = row_of<T>(o.y, row, columns);
  const float* statistics = row_of<float>(o.statistics, row, kStatistics<kind>);
  const auto mean = hn::Set(d, statistics[0]);
  const auto scale = hn::Set(d, statistics[kStatistics<kind> - 1]);
  for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto value = normed<kind>(load(d, x + i, lanes), mean, scale);
    if constexpr (kind == NormKind::layer) {
      store(d, hn::MulAdd(value, load(d, weight + i, lanes), load(d, bias + i, lanes)), y + i,
            lanes);
    } else {
      store(d, hn::Mul(value, load(d, weight + i, lanes)), y + i, lanes);
    }
  });
}

template <NormKind kind, typename T>
void forward(std::int64_t columns, const NormForward& o, Rows rows) {
  const hn::ScalableTag<float> d;
  const auto count = static_cast<std::size_t>(columns);
  const float inverse = 1.0F / static_cast<float>(columns);
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = residual_row<T>(columns, o, row);
    float* statistics = row_of<float>(o.statistics, row, kStatistics<kind>);
    auto mean = hn::Zero(d);
    if constexpr (kind == NormKind::layer) {
      auto sum = hn::Zero(d);
      for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
        sum = hn::Add(sum, load(d, x + i, lanes));
      });
      statistics[0] = sum_lanes(d, sum) * inverse;
      mean = hn::Set(d, statistics[0]);
    }
    auto squares = hn::Zero(d);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      auto off = load(d, x + i, lanes);
      if constexpr (kind == NormKind::layer) off = only(d, hn::Sub(off, mean), hn::Zero(d), lanes);
      squares = hn::MulAdd(off, off, squares);
    });
    const auto variance = hn::Set(d, sum_lanes(d, squares) * inverse + o.epsilon);
    statistics[kStatistics<kind> - 1] = hn::GetLane(hn::Div(hn::Set(d, 1.0F), hn::Sqrt(variance)));
    normalise_row<kind>(columns, o, row, x);
  }
}

/// sums: of dweight, followed, for a layer norm, by those of dbias.
template <NormKind kind, typename T>
void backward(std::int64_t columns, const NormBackward& o, Rows rows, float* sums) {
  const hn::ScalableTag<float> d;
  const auto count = static_cast<std::size_t>(columns);
  const float inverse = 1.0F / static_cast<float>(columns);
  const T* weight = row_of<T>(o.weight, 0, columns);
  float* dweight = sums;
  float* dbias = sums + columns;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = row_of<T>(o.x, row, columns);
    const T* dy = row_of<T>(o.dy, row, columns);
    T* dx = row_of<T>(o.dx, row, columns);
    const float* statistics = row_of<float>(o.statistics, row, kStatistics<kind>);
    const auto mean = hn::Set(d, statistics[0]);
    const auto scale = hn::Set(d, statistics[kStatistics<kind> - 1]);
    auto sum = hn::Zero(d);
    auto product = hn::Zero(d);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto value = normed<kind>(load(d, x + i, lanes), mean, scale);
      const auto gradient = load(d, dy + i, lanes);
      const auto scaled = hn::Mul(gradient, load(d, weight + i, lanes));
      product = hn::MulAdd(scaled, value, product);
      store(d, hn::MulAdd(gradient, value, load(d, dweight + i, lanes)), dweight + i, lanes);
      if constexpr (kind == NormKind::layer) {
        sum = hn::Add(sum, scaled);
        store(d, hn::Add(gradient, load(d, dbias + i, lanes)), dbias + i, lanes);
      }
    });
    const auto mean_scaled = hn::Set(d, sum_lanes(d, sum) * inverse);
    const auto mean_product = hn::Set(d, sum_lanes(d, product) * inverse);
    for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto value = normed<kind>(load(d, x + i, lanes), mean, scale);
      auto scaled = hn::Mul(load(d, dy + i, lanes), load(d, weight + i, lanes));
      if constexpr (kind == NormKind::layer) scaled = hn::Sub(scaled, mean_scaled);
      const auto inner = hn::NegMulAdd(value, mean_product, scaled);
      store(d, hn::MulAdd(inner, scale, load(d, dx + i, lanes)), dx + i, lanes);
    });
  }
}

/// Calls body(type, kind) for the type of the elements and the kind of norm.
template <typename Operands, typename Body>
void with_norm(const Operands& o, const Body& body) {
  with_type(o.x.dtype(), [&](auto type) {
    if (o.kind() == NormKind::layer) {
      body(type, std::integral_constant<NormKind, NormKind::layer>());
    } else {
      body(type, std::integral_constant<NormKind, NormKind::rms>());
    }
  });
}

void norm_forward(std::int64_t columns, const NormForward& o, Rows rows) {
  with_norm(o, [&]<class T, class Kind>(std::type_identity<T>, Kind) {
    forward<Kind::value, T>(columns, o, rows);
  });
}

void norm_apply(std::int64_t columns, const NormForward& o, Rows rows) {
  with_norm(o, [&]<class T, class Kind>(std::type_identity<T>, Kind) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      normalise_row<Kind::value>(columns, o, row, row_of<const T>(o.x, row, columns));
    }
  });
}

void norm_backward(std::int64_t columns, const NormBackward& o, Rows rows, float* sums) {
  with_norm(o, [&]<class T, class Kind>(std::type_identity<T>, Kind) {
    backward<Kind::value, T>(columns, o, rows, sums);
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_apply);
HWY_EXPORT(norm_backward);

void norm_forward_rows(std::int64_t columns, const NormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(norm_forward)(columns, operands, rows);
}

void norm_apply_rows(std::int64_t columns, const NormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(norm_apply)(columns, operands, rows);
}

void norm_backward_rows(std::int64_t columns, const NormBackward& operands, Rows rows,
                        std::span<float> sums) {
  HWY_DYNAMIC_DISPATCH(norm_backward)(columns, operands, rows, sums.data());
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
