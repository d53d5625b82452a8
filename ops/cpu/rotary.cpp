// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include "device/cpu/dispatch.h"
#include "ops/cpu/row_kernels.h"
#include "ops/cpu/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zero::cpu::HWY_NAMESPACE {

/// Rotates the pairs (first[i], second[i]) by the angles' cosines and sines, the sines times
/// `sign`.
template <typename T>
void turn_head(T* first, const float* cosines, const float* sines, float sign, std::size_t half) {
  const hn::ScalableTag<float> d;
  const auto direction = hn::Set(d, sign);
  for_lanes(d, half, [&](std::size_t i, auto lanes) HWY_ATTR {
    auto a = load(d, first + i, lanes);
    auto b = load(d, first + half + i, lanes);
    const auto cosine = load(d, cosines + i, lanes);
    const auto sine = hn::Mul(load(d, sines + i, lanes), direction);
    formulas(d).turn(a, b, cosine, sine);
    store(d, a, first + i, lanes);
    store(d, b, first + half + i, lanes);
  });
}

void turn_rows(const RotaryRows& o, Rows rows) {
  const RotaryShape& s = o.shape;
  const std::int64_t half = s.head_width / 2;
  const float sign = o.turn == Turn::forward ? 1.0F : -1.0F;
  dispatch(s.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      const std::int64_t position = row % s.sequence;
      T* x = row_of<T>(o.x, row, s.row_width);
      for (std::int64_t head = 0; head < s.heads; ++head) {
        turn_head(x + head * s.head_width, row_of<float>(o.cosines, position, half),
                  row_of<float>(o.sines, position, half), sign, static_cast<std::size_t>(half));
      }
    }
  });
}

}  // namespace zero::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero::cpu {
HWY_EXPORT(turn_rows);

void rotary_rows(const RotaryRows& operands, Rows rows) {
  HWY_DYNAMIC_DISPATCH(turn_rows)(operands, rows);
}

}  // namespace zero::cpu
#endif  // HWY_ONCE
