// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/norm.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "device/cpu/dispatch.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// fp32 statistics per row.
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

template <NormKind kind, class D, typename T, typename L>
HWY_INLINE hn::Vec<D> load_weight(D d, const T* weight, L lanes) {
  const auto stored = load(d, weight, lanes);
  if constexpr (kind != NormKind::rms_plus_one) return stored;
  return hn::Add(stored, hn::Set(d, 1.0F));
}

/// `mean` is unused for an RMS norm.
template <NormKind kind, typename V>
HWY_INLINE V normed(V x, V mean, V scale) {
  if constexpr (kind == NormKind::layer) x = hn::Sub(x, mean);
  return hn::Mul(x, scale);
}

/// The statistics of a row of `count` elements.
template <NormKind kind, typename T>
void measure(std::size_t count, const T* x, float epsilon, float* statistics) {
  const hn::ScalableTag<float> d;
  const float inverse = 1.0F / static_cast<float>(count);
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
  const auto variance = hn::Set(d, sum_lanes(d, squares) * inverse + epsilon);
  statistics[kStatistics<kind> - 1] = hn::GetLane(hn::Div(hn::Set(d, 1.0F), hn::Sqrt(variance)));
}

/// y may be x. The bias is a layer norm's.
template <NormKind kind, typename T>
void normalise(std::size_t count, const T* x, const float* statistics, const T* weight,
               const T* bias, T* y) {
  const hn::ScalableTag<float> d;
  const auto mean = hn::Set(d, statistics[0]);
  const auto scale = hn::Set(d, statistics[kStatistics<kind> - 1]);
  for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto value = normed<kind>(load(d, x + i, lanes), mean, scale);
    if constexpr (kind == NormKind::layer) {
      store(d, hn::MulAdd(value, load_weight<kind>(d, weight + i, lanes), load(d, bias + i, lanes)),
            y + i, lanes);
    } else {
      store(d, hn::Mul(value, load_weight<kind>(d, weight + i, lanes)), y + i, lanes);
    }
  });
}

template <NormKind kind, typename T>
void normalise_row(std::int64_t columns, const NormForward& o, std::int64_t row, const T* x) {
  normalise<kind>(static_cast<std::size_t>(columns), x,
                  row_of<float>(o.statistics, row, kStatistics<kind>),
                  row_of<const T>(o.weight, 0, columns), row_of<const T>(o.bias, 0, columns),
                  row_of<T>(o.y, row, columns));
}

template <NormKind kind, typename T>
void forward(std::int64_t columns, const NormForward& o, Rows rows) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = residual_row<T>(columns, o, row);
    measure<kind>(static_cast<std::size_t>(columns), x, o.epsilon,
                  row_of<float>(o.statistics, row, kStatistics<kind>));
    normalise_row<kind>(columns, o, row, x);
  }
}

/// The gradient of a row: added to what dx holds, or written, where dx may be dy.
template <NormKind kind, Write write, typename T>
void backward_row(std::size_t count, const T* x, const float* statistics, const T* weight,
                  const T* dy, T* dx, float* dweight) {
  const hn::ScalableTag<float> d;
  const float inverse = 1.0F / static_cast<float>(count);
  float* dbias = dweight + count;  // of a layer norm
  const auto mean = hn::Set(d, statistics[0]);
  const auto scale = hn::Set(d, statistics[kStatistics<kind> - 1]);
  auto sum = hn::Zero(d);
  auto product = hn::Zero(d);
  for_lanes(d, count, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto value = normed<kind>(load(d, x + i, lanes), mean, scale);
    const auto gradient = load(d, dy + i, lanes);
    const auto scaled = hn::Mul(gradient, load_weight<kind>(d, weight + i, lanes));
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
    auto scaled = hn::Mul(load(d, dy + i, lanes), load_weight<kind>(d, weight + i, lanes));
    if constexpr (kind == NormKind::layer) scaled = hn::Sub(scaled, mean_scaled);
    const auto inner = hn::NegMulAdd(value, mean_product, scaled);
    if constexpr (write == Write::add) {
      store(d, hn::MulAdd(inner, scale, load(d, dx + i, lanes)), dx + i, lanes);
    } else {
      store(d, hn::Mul(inner, scale), dx + i, lanes);
    }
  });
}

/// sums: of dweight, followed, for a layer norm, by those of dbias.
template <NormKind kind, typename T>
void backward(std::int64_t columns, const NormBackward& o, Rows rows, float* sums) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    backward_row<kind, Write::add>(
        static_cast<std::size_t>(columns), row_of<const T>(o.x, row, columns),
        row_of<float>(o.statistics, row, kStatistics<kind>), row_of<const T>(o.weight, 0, columns),
        row_of<const T>(o.dy, row, columns), row_of<T>(o.dx, row, columns), sums);
  }
}

template <NormKind kind, typename T>
void forward_heads(const HeadNormShape& s, const HeadNormForward& o, Rows rows) {
  const auto width = static_cast<std::size_t>(s.head_width);
  const std::int64_t values = s.normed_heads() * s.head_width;  // where they begin in a row
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = row_of<const T>(o.x, row, s.qkv_width());
    T* y = row_of<T>(o.y, row, s.qkv_width());
    for (std::int64_t head = 0; head < s.normed_heads(); ++head) {
      float scale = 0;
      float* statistics =
          o.statistics.empty() ? &scale : row_of<float>(o.statistics, row, s.normed_heads()) + head;
      const T* weight = row_of<const T>(head < s.heads ? o.query_weight : o.key_weight, 0, 0);
      const std::int64_t at = head * s.head_width;
      measure<kind>(width, x + at, o.epsilon, statistics);
      normalise<kind, T>(width, x + at, statistics, weight, nullptr, y + at);
    }
    if (x != y) std::copy(x + values, x + s.qkv_width(), y + values);
  }
}

/// sums: of the queries' weight, then of the keys'.
template <NormKind kind, typename T>
void backward_heads(const HeadNormShape& s, const HeadNormBackward& o, Rows rows, float* sums) {
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const T* x = row_of<const T>(o.x, row, s.qkv_width());
    T* dy = row_of<T>(o.dy, row, s.qkv_width());
    for (std::int64_t head = 0; head < s.normed_heads(); ++head) {
      const bool query = head < s.heads;
      const std::int64_t at = head * s.head_width;
      backward_row<kind, Write::overwrite>(
          static_cast<std::size_t>(s.head_width), x + at,
          row_of<const float>(o.statistics, row, s.normed_heads()) + head,
          row_of<const T>(query ? o.query_weight : o.key_weight, 0, 0), dy + at, dy + at,
          query ? sums : sums + s.head_width);
    }
  }
}

/// Calls body(kind) for the kind of RMS norm.
template <typename Operands, typename Body>
void with_rms(const Operands& o, const Body& body) {
  if (o.plus_one) {
    body(std::integral_constant<NormKind, NormKind::rms_plus_one>());
  } else {
    body(std::integral_constant<NormKind, NormKind::rms>());
  }
}

/// Calls body(type, kind) for the type of the elements and the kind of norm.
template <typename Operands, typename Body>
void with_norm(const Operands& o, const Body& body) {
  dispatch(o.x.dtype(), [&](auto type) {
    if (o.kind() == NormKind::layer) {
      body(type, std::integral_constant<NormKind, NormKind::layer>());
    } else {
      with_rms(o, [&](auto kind) { body(type, kind); });
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

void head_norm_forward(const HeadNormShape& s, const HeadNormForward& o, Rows rows) {
  dispatch(s.dtype, [&]<class T>(std::type_identity<T>) {
    with_rms(o, [&]<class Kind>(Kind) { forward_heads<Kind::value, T>(s, o, rows); });
  });
}

void head_norm_backward(const HeadNormShape& s, const HeadNormBackward& o, Rows rows, float* sums) {
  dispatch(s.dtype, [&]<class T>(std::type_identity<T>) {
    with_rms(o, [&]<class Kind>(Kind) { backward_heads<Kind::value, T>(s, o, rows, sums); });
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(norm_forward);
HWY_EXPORT(norm_apply);
HWY_EXPORT(norm_backward);
HWY_EXPORT(head_norm_forward);
HWY_EXPORT(head_norm_backward);

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

void head_norm_rows(const HeadNormShape& shape, const HeadNormForward& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(head_norm_forward)(shape, operands, rows);
}

void head_norm_backward_rows(const HeadNormShape& shape, const HeadNormBackward& operands,
                             Rows rows, std::span<float> sums) {
  HWY_DYNAMIC_DISPATCH(head_norm_backward)(shape, operands, rows, sums.data());
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
