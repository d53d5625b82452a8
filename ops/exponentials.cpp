// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/exponentials.cpp"
#include <hwy/foreach_target.h>
// Highway requires this order: after foreach_target.
#include <hwy/highway.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

#include "ops/exponentials.h"

// Plain loops, compiled once for each target: without contraction their bits are the same.
HWY_BEFORE_NAMESPACE();
namespace zero::HWY_NAMESPACE {

constexpr auto kTaylor = [] {
  std::array<double, 14> one_over_factorial{1};
  double factorial = 1;
  for (std::size_t n = 1; n < one_over_factorial.size(); ++n) {
    factorial *= static_cast<double>(n);
    one_over_factorial[n] = 1 / factorial;
  }
  return one_over_factorial;
}();

// e^x for x <= 0: x = k ln 2 + r, |r| <= ln 2 / 2; e^r by its series, 2^k by the bits of the
// exponent.
HWY_INLINE double exp_of(double x) {
  constexpr double kRound = 0x1.8p52;        // added, leaves the nearest integer in the low bits
  constexpr double kHigh = 0x1.62e42feep-1;  // ln 2 in two parts; k * kHigh is exact
  constexpr double kLow = 0x1.a39ef35793c76p-33;
  const double bounded = x > -700 ? x : -700;
  const double rounded = bounded * std::numbers::log2e + kRound;
  const double k = rounded - kRound;
  const double r = (bounded - k * kHigh) - k * kLow;
  double series = kTaylor[kTaylor.size() - 1];
#pragma GCC unroll 16
  for (std::size_t n = kTaylor.size() - 1; n-- > 0;) series = series * r + kTaylor[n];
  const auto power = std::bit_cast<std::uint64_t>(rounded) << 52;
  const double not_zero = x > -700 ? 1 : 0;  // as a factor: a branch would keep loops scalar
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(series) + power) * not_zero;
}

void exponentials(const float* HWY_RESTRICT values, std::size_t count, double largest,
                  double temperature, double* HWY_RESTRICT out) {
  if (temperature == 1) {  // divisions take as long as all the rest
    for (std::size_t i = 0; i < count; ++i) out[i] = exp_of(values[i] - largest);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) out[i] = exp_of((values[i] - largest) / temperature);
}

double sum_by_lanes(const double* HWY_RESTRICT weights, std::size_t count) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> sums{};
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
  }
  for (std::size_t i = whole; i < count; ++i) sums[i - whole] += weights[i];
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

// Orders integers as the floats of these bits, NaNs at both ends; its own inverse.
HWY_INLINE std::int32_t ordered(std::int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

void extremes_of(const float* HWY_RESTRICT values, std::size_t count, float* least,
                 float* largest) {
  std::int32_t low = std::numeric_limits<std::int32_t>::max();
  std::int32_t high = std::numeric_limits<std::int32_t>::min();
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t key = ordered(std::bit_cast<std::int32_t>(values[i]));
    low = key < low ? key : low;
    high = key > high ? key : high;
  }
  *least = std::bit_cast<float>(ordered(low));
  *largest = std::bit_cast<float>(ordered(high));
}

}  // namespace zero::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {
HWY_EXPORT(exponentials);
HWY_EXPORT(sum_by_lanes);
HWY_EXPORT(extremes_of);

void exponentials(std::span<const float> values, double largest, double temperature,
                  std::span<double> out) {
  HWY_DYNAMIC_DISPATCH(exponentials)
  (values.data(), values.size(), largest, temperature, out.data());
}

double sum_by_lanes(std::span<const double> weights) {
  return HWY_DYNAMIC_DISPATCH(sum_by_lanes)(weights.data(), weights.size());
}

Extremes extremes_of(std::span<const float> values) {
  Extremes found;
  HWY_DYNAMIC_DISPATCH(extremes_of)(values.data(), values.size(), &found.least, &found.largest);
  return found;
}

}  // namespace zero
#endif  // HWY_ONCE
