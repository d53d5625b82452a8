// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/attention_kernels.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/cpu/dispatch.h"
#include "ops/cpu/attention.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// A whole vector; only the first `count` lanes matter.
struct CountedLanes {
  std::size_t count;
};
template <class D, typename T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, CountedLanes) {
  return load_floats(d, from);
}
template <class D, typename T>
HWY_INLINE hn::Vec<D> store(D d, hn::Vec<D> value, T* to, CountedLanes) {
  return store_rounded(d, value, to);
}
template <class D>
HWY_INLINE hn::Vec<D> only(D d, hn::Vec<D> value, hn::Vec<D> other, CountedLanes lanes) {
  return only(d, value, other, SomeLanes{lanes.count});
}
/// for_lanes() over [0, count) of a row of `room` elements: the rest is CountedLanes if a whole
/// vector fits the row.
template <class D, class Body>
HWY_INLINE void for_lanes_with_room(D d, std::size_t count, std::size_t room, const Body& body) {
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t rest = count % lanes;
  const std::size_t whole = count - rest;
  if (rest == 0 || whole + lanes > room) return for_lanes(d, count, body);
  for (std::size_t i = 0; i < whole; i += lanes) body(i, AllLanes{});
  body(whole, CountedLanes{rest});
}

template <typename T>
void softmax_rows(const SoftmaxBlock& b) {
  const hn::ScalableTag<float> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  const float scale = b.scale * kLog2E;
  for (std::int64_t row = 0; row < b.rows; ++row) {
    const std::int64_t end = std::min(b.keys, b.first + row + 1);
    const std::int64_t begin = std::max<std::int64_t>(b.first + row + 1 - b.window, 0);
    const float* scores = b.scores + row * b.stride + begin;
    T* const of_row = static_cast<T*>(b.probabilities) + row * b.stride;
    T* const probabilities = of_row + begin;
    const auto count = static_cast<std::size_t>(end - begin);
    const auto room = static_cast<std::size_t>(b.keys - begin);
    auto largest = lowest;
    for_lanes_with_room(d, count, room, [&](std::size_t i, auto lanes) HWY_ATTR {
      largest = hn::Max(largest, only(d, load(d, scores + i, lanes), lowest, lanes));
    });
    const float shift = hn::GetLane(hn::MaxOfLanes(d, largest)) * scale;
    auto sums = hn::Zero(d);
    for_lanes_with_room(d, count, room, [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto x = hn::MulSub(load(d, scores + i, lanes), hn::Set(d, scale), hn::Set(d, shift));
      const auto probability = exp2(d, x);
      sums = hn::Add(sums, only(d, probability, hn::Zero(d), lanes));
      store(d, probability, probabilities + i, lanes);
    });
    std::fill(of_row, probabilities, T{});
    std::fill(of_row + end, of_row + b.keys, T{});
    const float sum = sum_lanes(d, sums);
    b.inverse_sums[row] = 1.0F / sum;
    b.logsumexp[row] = shift / kLog2E + std::log(sum);
  }
}

template <typename T>
void gradient_rows(const GradientBlock& b) {
  const hn::ScalableTag<float> d;
  const auto lanes_count = static_cast<std::int64_t>(hn::Lanes(d));
  const auto to_log2 = hn::Set(d, b.scale * kLog2E);
  const auto scale = hn::Set(d, b.scale);
  for (std::int64_t row = 0; row < b.rows; ++row) {
    const std::int64_t start = row / lanes_count * lanes_count;  // queries before `row` are masked
    const float* scores = b.scores + row * b.stride + start;
    const float* dprobabilities = b.dprobabilities + row * b.stride + start;
    const float* log2_sums = b.log2_sums + b.first + start;
    const float* deltas = b.deltas + b.first + start;
    T* probabilities = static_cast<T*>(b.probabilities) + row * b.stride;
    T* dscores = static_cast<T*>(b.dscores) + row * b.stride;
    const std::int64_t end = std::min(b.queries, row + b.window);
    for_lanes(d, static_cast<std::size_t>(end - start), [&](std::size_t i, auto lanes) HWY_ATTR {
      const auto x = hn::MulSub(load(d, scores + i, lanes), to_log2, load(d, log2_sums + i, lanes));
      const auto probability = exp2(d, x);
      const auto change = hn::Sub(load(d, dprobabilities + i, lanes), load(d, deltas + i, lanes));
      store(d, probability, probabilities + start + i, lanes);
      store(d, hn::Mul(hn::Mul(probability, change), scale), dscores + start + i, lanes);
    });
    for (T* const each : {probabilities, dscores}) {
      std::fill(each, each + row, T{});
      std::fill(each + end, each + b.queries, T{});
    }
  }
}

template <typename T>
void store_typed(const float* from, std::int64_t rows, std::int64_t columns, const float* factors,
                 T* to, std::int64_t stride) {
  const hn::ScalableTag<float> d;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto factor = hn::Set(d, factors == nullptr ? 1.0F : factors[row]);
    for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
      store(d, hn::Mul(load(d, from + row * columns + i, lanes), factor), to + row * stride + i,
            lanes);
    });
  }
}

void softmax_any(const SoftmaxBlock& b) {
  dispatch(b.dtype, [&](auto type) { softmax_rows<typename decltype(type)::type>(b); });
}

void gradient_any(const GradientBlock& b) {
  dispatch(b.dtype, [&](auto type) { gradient_rows<typename decltype(type)::type>(b); });
}

void store_any(const float* from, std::int64_t rows, std::int64_t columns, const float* factors,
               const RowBlock& to) {
  dispatch(to.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    store_typed(from, rows, columns, factors, static_cast<T*>(to.data), to.stride);
  });
}

void dots_any(const RowBlock& a, const RowBlock& b, std::int64_t rows, std::int64_t columns,
              float* dots) {
  const hn::ScalableTag<float> d;
  dispatch(a.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* x = static_cast<const T*>(a.data) + row * a.stride;
      const T* y = static_cast<const T*>(b.data) + row * b.stride;
      auto sum = hn::Zero(d);
      for_lanes(d, static_cast<std::size_t>(columns), [&](std::size_t i, auto lanes) HWY_ATTR {
        sum = hn::MulAdd(load(d, x + i, lanes), load(d, y + i, lanes), sum);
      });
      dots[row] = sum_lanes(d, sum);
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(softmax_any);
HWY_EXPORT(gradient_any);
HWY_EXPORT(store_any);
HWY_EXPORT(dots_any);

void softmax_block(const SoftmaxBlock& block) { HWY_DYNAMIC_DISPATCH(softmax_any)(block); }

void gradient_block(const GradientBlock& block) { HWY_DYNAMIC_DISPATCH(gradient_any)(block); }

void store_rows(const float* from, std::int64_t rows, std::int64_t columns, const float* factors,
                const RowBlock& to) {
  HWY_DYNAMIC_DISPATCH(store_any)(from, rows, columns, factors, to);
}

void row_dots(const RowBlock& a, const RowBlock& b, std::int64_t rows, std::int64_t columns,
              float* dots) {
  HWY_DYNAMIC_DISPATCH(dots_any)(a, b, rows, columns, dots);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
