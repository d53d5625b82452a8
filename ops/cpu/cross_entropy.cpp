// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "device/cpu/dispatch.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

struct Softmax {
  float largest;
  float sum;  ///< of exp(logit - largest)
};

template <typename T>
Softmax softmax_of(const T* logits, std::size_t columns) {
  const hn::ScalableTag<float> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto largest = lowest;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    largest = hn::Max(largest, only(d, load(d, logits + i, lanes), lowest, lanes));
  });
  const float top = hn::GetLane(hn::MaxOfLanes(d, largest));
  const auto scale = hn::Set(d, kLog2E);
  const auto shift = hn::Set(d, top * kLog2E);
  auto sum = hn::Zero(d);
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto power = exp2(d, hn::MulSub(load(d, logits + i, lanes), scale, shift));
    sum = hn::Add(sum, only(d, power, hn::Zero(d), lanes));
  });
  return {top, sum_lanes(d, sum)};
}

template <typename T>
double loss_of(const LogitRows& o, std::int64_t row, const T* logits, Softmax softmax) {
  const float target =
      to_float(logits[o.targets.as<std::int32_t>()[static_cast<std::size_t>(row)]]);
  return std::log(static_cast<double>(softmax.sum)) + static_cast<double>(softmax.largest) -
         static_cast<double>(target);
}

/// A `target` outside the columns belongs to another rank.
template <typename T>
void gradient_row(T* logits, std::size_t columns, std::size_t target, Softmax softmax,
                  float scale) {
  const hn::ScalableTag<float> d;
  const auto log2e = hn::Set(d, kLog2E);
  const auto shift = hn::Set(d, softmax.largest * kLog2E);
  const auto factor = hn::Set(d, scale / softmax.sum);
  // The target's entry, probability - 1, is computed before rounding.
  const float kept = target < columns ? to_float(logits[target]) : 0.0F;
  for_lanes(d, columns, [&](std::size_t i, auto lanes) HWY_ATTR {
    const auto power = exp2(d, hn::MulSub(load(d, logits + i, lanes), log2e, shift));
    store(d, hn::Mul(power, factor), logits + i, lanes);
  });
  if (target >= columns) return;
  const auto power = exp2(d, hn::MulSub(hn::Set(d, kept), log2e, shift));
  const float own = hn::GetLane(hn::Mul(power, factor)) - scale;
  store(d, hn::Set(d, own), logits + target, SomeLanes{1});
}

void losses_only(const LogitRows& o, Rows rows) {
  dispatch(o.logits.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const T* logits = row_of<T>(o.logits, row, o.shape.row_stride());
      const Softmax softmax = softmax_of(logits, static_cast<std::size_t>(o.shape.columns));
      *row_of<double>(o.losses, row, 1) = loss_of(o, row, logits, softmax);
    }
  });
}

void losses_and_gradients(const LogitRows& o, Rows rows) {
  dispatch(o.logits.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const auto columns = static_cast<std::size_t>(o.shape.columns);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      T* logits = row_of<T>(o.logits, row, o.shape.row_stride());
      const Softmax softmax = softmax_of(logits, columns);
      *row_of<double>(o.losses, row, 1) = loss_of(o, row, logits, softmax);
      const std::int32_t target = *row_of<std::int32_t>(o.targets, row, 1);
      gradient_row(logits, columns, static_cast<std::size_t>(target), softmax, o.scale);
    }
  });
}

/// The column of the row's target; not less than the number of columns if another rank holds it.
std::size_t column_of_target(const LogitRows& o, std::int64_t row) {
  const std::int64_t column = *row_of<std::int32_t>(o.targets, row, 1) - o.shape.first;
  return static_cast<std::size_t>(column < 0 ? o.shape.columns : column);
}

void softmax_parts(const LogitRows& o, Rows rows) {
  dispatch(o.logits.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const auto columns = static_cast<std::size_t>(o.shape.columns);
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const T* logits = row_of<T>(o.logits, row, o.shape.row_stride());
      const Softmax softmax = softmax_of(logits, columns);
      const std::size_t target = column_of_target(o, row);
      float* part = row_of<float>(o.parts, row, kSoftmaxPart);
      part[0] = softmax.largest;
      part[1] = softmax.sum;
      part[2] = target < columns ? to_float(logits[target]) : 0.0F;
    }
  });
}

void softmax_gradients(const LogitRows& o, Rows rows) {
  dispatch(o.logits.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const float* softmax = row_of<float>(o.parts, row, kSoftmaxPart);
      gradient_row(row_of<T>(o.logits, row, o.shape.row_stride()),
                   static_cast<std::size_t>(o.shape.columns), column_of_target(o, row),
                   {softmax[0], softmax[1]}, o.scale);
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(losses_only);
HWY_EXPORT(losses_and_gradients);
HWY_EXPORT(softmax_parts);
HWY_EXPORT(softmax_gradients);

namespace {

// Rescales the sums of exponentials to the largest logit of all ranks.
void fold_row(std::int64_t row, std::int64_t rows, std::int64_t ranks, View parts, double& loss) {
  const auto part = [&](std::int64_t rank) {
    return row_of<float>(parts, rank * rows + row, kSoftmaxPart);
  };
  float largest = part(0)[0];
  for (std::int64_t rank = 1; rank < ranks; ++rank) largest = std::max(largest, part(rank)[0]);
  double sum = 0;
  float target = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const float* of_rank = part(rank);
    sum += static_cast<double>(of_rank[1]) *
           std::exp(static_cast<double>(of_rank[0]) - static_cast<double>(largest));
    target += of_rank[2];
  }
  part(0)[0] = largest;
  part(0)[1] = static_cast<float>(sum);
  loss = std::log(sum) + static_cast<double>(largest) - static_cast<double>(target);
}

}  // namespace

void cross_entropy_rows(const LogitRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(losses_only)(operands, rows);
}

void cross_entropy_gradient_rows(const LogitRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(losses_and_gradients)(operands, rows);
}

void softmax_part_rows(const LogitRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(softmax_parts)(operands, rows);
}

void softmax_gradient_rows(const LogitRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(softmax_gradients)(operands, rows);
}

void fold_softmax_rows(std::int64_t rows, std::int64_t ranks, View parts, View losses) {
  for (std::int64_t row = 0; row < rows; ++row) {
    fold_row(row, rows, ranks, parts, losses.as<double>()[static_cast<std::size_t>(row)]);
  }
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
