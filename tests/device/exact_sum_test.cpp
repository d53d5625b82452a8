// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/exact_sum.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace zero {
namespace {

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

/// A double of any sign, exponents -200 to 200, all mantissa bits.
rc::Gen<double> wide_double() {
  return rc::gen::map(
      rc::gen::tuple(rc::gen::arbitrary<std::int64_t>(), rc::gen::inRange(-260, 140)),
      [](const auto& parts) {
        return std::ldexp(static_cast<double>(std::get<0>(parts)), std::get<1>(parts));
      });
}

RC_GTEST_PROP(ExactSums, DoNotDependOnOrder, (std::uint64_t seed)) {
  auto values = *rc::gen::container<std::vector<double>>(wide_double());
  const double expected = sum_of(values).value();
  std::shuffle(values.begin(), values.end(), std::mt19937_64(seed));
  RC_ASSERT(std::bit_cast<std::uint64_t>(expected) ==
            std::bit_cast<std::uint64_t>(sum_of(values).value()));
}

RC_GTEST_PROP(ExactSums, DoNotDependOnGrouping, ()) {
  const auto values = *rc::gen::container<std::vector<double>>(wide_double());
  const auto cut = *rc::gen::inRange<std::size_t>(0, values.size() + 1);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(cut);
  ExactSum left = sum_of({values.begin(), middle});
  const ExactSum right = sum_of({middle, values.end()});
  ExactSum swapped = right;
  swapped.add(left);
  left.add(right);
  RC_ASSERT(std::ranges::equal(left.limbs(), swapped.limbs()));
  RC_ASSERT(left.value() == sum_of(values).value());
}

RC_GTEST_PROP(ExactSums, OfTwoAreTheRoundedSum, ()) {
  const double a = *wide_double();
  const double b = *wide_double();
  RC_ASSERT(sum_of({a, b}).value() == a + b);  // IEEE addition rounds the exact sum correctly
}

RC_GTEST_PROP(ExactSums, OfIntegersAreExact, (const std::vector<std::int32_t>& values)) {
  const std::vector<double> doubles(values.begin(), values.end());
  const auto expected = std::accumulate(values.begin(), values.end(), std::int64_t{0});
  RC_ASSERT(sum_of(doubles).value() == static_cast<double>(expected));
}

RC_GTEST_PROP(ExactSums, OfSquaresAgreeWithLongDouble, (const std::vector<float>& values)) {
  long double expected = 0;
  ExactSum sum;
  for (const float value : values) {
    sum.add(double{value} * value);
    expected += static_cast<long double>(double{value} * value);
  }
  RC_ASSERT(std::abs(static_cast<double>(expected) - sum.value()) <= 1e-15 * sum.value());
}

TEST(ExactSums, KeepWhatCancellationLeaves) {
  EXPECT_EQ(1.0, sum_of({1e150, 1.0, -1e150}).value());
  EXPECT_EQ(-0x1p-460, sum_of({0x1p511, -0x1p-460, -0x1p511}).value());
  EXPECT_EQ(0.0, sum_of({3.5, -3.5}).value());
  EXPECT_EQ(0.0, ExactSum().value());
}

TEST(ExactSums, RoundTiesToEvenAndSeeEveryBitBelow) {
  EXPECT_EQ(0x1p53, sum_of({0x1p53, 1.0}).value());
  EXPECT_EQ(0x1p53 + 4, sum_of({0x1p53, 3.0}).value());
  EXPECT_EQ(0x1p53 + 2, sum_of({0x1p53, 1.0, 0x1p-400}).value());
  EXPECT_EQ(-0x1p53 - 2, sum_of({-0x1p53, -1.0, -0x1p-400}).value());
  EXPECT_EQ(0x1p53, sum_of({0x1p53, 1.0, -0x1p-400}).value());
}

TEST(ExactSums, TakeTheLargestAndTheSmallestInRange) {
  const double largest = std::nextafter(0x1p512, 0.0);
  EXPECT_EQ(largest, sum_of({largest}).value());
  EXPECT_EQ(-largest, sum_of({-largest}).value());
  EXPECT_EQ(0x1p-512, sum_of({0x1p-512}).value());
  EXPECT_EQ(0x1p-512, sum_of({std::nextafter(0x1p-511, 0.0)}).value());  // truncated
  EXPECT_EQ(-0x1p-512, sum_of({-0x1.8p-512}).value());
  EXPECT_EQ(0.0, sum_of({0x1p-513, 5e-324, -1e-300}).value());
  std::vector<double> many(1000, largest);
  EXPECT_EQ(1000 * largest, sum_of(many).value());
}

TEST(ExactSums, CountWhatIsNotFiniteOrTooLarge) {
  const double infinity = std::numeric_limits<double>::infinity();
  ExactSum sum = sum_of({1.0, infinity, -infinity, std::nan(""), 0x1p512});
  EXPECT_EQ(4, sum.nonfinite());
  EXPECT_TRUE(std::isnan(sum.value()));
  sum.add(sum_of({infinity}));
  EXPECT_EQ(5, sum.nonfinite());
  sum.clear();
  EXPECT_EQ(0, sum.nonfinite());
  EXPECT_EQ(0.0, sum.value());
}

TEST(ExactSums, AddUpAsPlainLimbsOverRanks) {
  ExactSum total;
  double expected = 0;
  for (int rank = 0; rank < 9; ++rank) {
    const ExactSum mine = sum_of({rank + 0.25, -1e10 * rank});
    expected += rank + 0.25 - 1e10 * rank;
    for (std::size_t i = 0; i < ExactSum::kLimbs; ++i) total.limbs()[i] += mine.limbs()[i];
  }
  EXPECT_EQ(expected, total.value());
}

TEST(ExactSums, TakeMillionsOfAddendsWithoutACarry) {
  ExactSum sum;
  for (int i = 0; i < 3'000'000; ++i) sum.add(0x1.fffffffffffffp31);
  EXPECT_EQ(3'000'000 * 0x1.fffffffffffffp31, sum.value());
}

}  // namespace
}  // namespace zero
