// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "launch/telemetry/multiply_add_rate.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway requires.
#include <hwy/highway.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/seconds_since.h"
#include "device/cpu/parallel.h"
#include "launch/telemetry/machine_limits.h"
#include "ops/cpu/products.h"

HWY_BEFORE_NAMESPACE();
namespace zero::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// More sums than the multiply-adds in flight on a processor: two units of four or five cycles.
constexpr double kSums = 12;

double flop_of_a_turn() {
  return 2 * kSums * static_cast<double>(hn::Lanes(hn::ScalableTag<float>()));
}

// Converges to 1, so no value overflows. The result depends on all of the arithmetic.
float multiply_add(std::int64_t turns, float factor) {
  const hn::ScalableTag<float> d;
  const auto f = hn::Set(d, factor);
  const auto a = hn::Set(d, 1.0F - factor);
  auto s0 = hn::Iota(d, 0.0F), s1 = hn::Iota(d, 0.1F), s2 = hn::Iota(d, 0.2F);
  auto s3 = hn::Iota(d, 0.3F), s4 = hn::Iota(d, 0.4F), s5 = hn::Iota(d, 0.5F);
  auto s6 = hn::Iota(d, 0.6F), s7 = hn::Iota(d, 0.7F), s8 = hn::Iota(d, 0.8F);
  auto s9 = hn::Iota(d, 0.9F), s10 = hn::Iota(d, 1.0F), s11 = hn::Iota(d, 1.1F);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    s0 = hn::MulAdd(s0, f, a);
    s1 = hn::MulAdd(s1, f, a);
    s2 = hn::MulAdd(s2, f, a);
    s3 = hn::MulAdd(s3, f, a);
    s4 = hn::MulAdd(s4, f, a);
    s5 = hn::MulAdd(s5, f, a);
    s6 = hn::MulAdd(s6, f, a);
    s7 = hn::MulAdd(s7, f, a);
    s8 = hn::MulAdd(s8, f, a);
    s9 = hn::MulAdd(s9, f, a);
    s10 = hn::MulAdd(s10, f, a);
    s11 = hn::MulAdd(s11, f, a);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
}

}  // namespace zero::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zero {
namespace {

HWY_EXPORT(flop_of_a_turn);
HWY_EXPORT(multiply_add);

constexpr std::int64_t kTurns = std::int64_t{1} << 21;  // a few milliseconds

}  // namespace

double multiply_add_rate(DType dtype, int threads) {
  std::atomic<float> kept = 0;  // keeps the compiler from removing the arithmetic
  std::atomic<double> flop = 0;
  const auto start = std::chrono::steady_clock::now();
  cpu::parallel_for(threads, threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) {
      double done = cpu::flop_in_registers(dtype, kTurns);
      if (done == 0) {
        kept = HWY_DYNAMIC_DISPATCH(multiply_add)(kTurns, 0.999F);
        done = HWY_DYNAMIC_DISPATCH(flop_of_a_turn)() * static_cast<double>(kTurns);
      }
      flop += done;
    }
  });
  return flop / seconds_since(start);
}

}  // namespace zero
#endif  // HWY_ONCE
