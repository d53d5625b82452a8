// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace zero {
namespace {

/// What a binary format of `mantissa_bits` and smallest exponent `lowest` makes of its bits.
double value_of(std::uint32_t bits, int mantissa_bits, int lowest) {
  const int exponent_bits = 15 - mantissa_bits;
  const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1U << exponent_bits) - 1));
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const double fraction = std::ldexp(static_cast<double>(mantissa), -mantissa_bits);
  return exponent == 0 ? sign * std::ldexp(fraction, lowest)
                       : sign * std::ldexp(1.0 + fraction, exponent - 1 + lowest);
}

struct Bf16 {
  using Type = bfloat16;
  static constexpr int kMantissa = 7;
  static constexpr int kLowest = -126;
  static bfloat16 round(float value) { return to_bfloat16(value); }
};
struct Fp16 {
  using Type = float16;
  static constexpr int kMantissa = 10;
  static constexpr int kLowest = -14;
  static float16 round(float value) { return to_float16(value); }
};

template <typename Format>
class Half : public ::testing::Test {};
using Formats = ::testing::Types<Bf16, Fp16>;
TYPED_TEST_SUITE(Half, Formats);

template <typename Format>
float expand(std::uint32_t bits) {
  return to_float(typename Format::Type{static_cast<std::uint16_t>(bits)});
}

TYPED_TEST(Half, EveryValueMeansWhatItsBitsSay) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const double expected = value_of(bits, TypeParam::kMantissa, TypeParam::kLowest);
    const float found = expand<TypeParam>(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
    } else {
      ASSERT_EQ(expected, static_cast<double>(found)) << bits;
      ASSERT_EQ(std::signbit(expected), std::signbit(found)) << bits;
    }
  }
}

TYPED_TEST(Half, EveryValueRoundTripsAndNanStaysNan) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float value = expand<TypeParam>(bits);
    const auto rounded = TypeParam::round(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(to_float(rounded))) << bits;
    } else {
      ASSERT_EQ(bits, rounded.bits) << bits;
    }
  }
}

TYPED_TEST(Half, BetweenNeighboursTheNearestWinsAndTiesGoToEven) {
  const std::uint32_t infinity = ((1U << (15 - TypeParam::kMantissa)) - 1) << TypeParam::kMantissa;
  for (std::uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    const double low = expand<TypeParam>(bits);
    const double high = expand<TypeParam>(bits + 1);
    const auto tie = static_cast<float>((low + high) / 2);  // exact in fp32
    ASSERT_EQ((low + high) / 2, static_cast<double>(tie));
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(even, TypeParam::round(tie).bits) << bits;
    ASSERT_EQ(even | 0x8000U, TypeParam::round(-tie).bits) << bits;
    ASSERT_EQ(bits, TypeParam::round(std::nextafter(tie, 0.0F)).bits) << bits;
    ASSERT_EQ(bits + 1,
              TypeParam::round(std::nextafter(tie, std::numeric_limits<float>::infinity())).bits)
        << bits;
  }
}

TYPED_TEST(Half, BeyondTheLargestIsInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(infinity, to_float(TypeParam::round(std::numeric_limits<float>::max())));
  EXPECT_EQ(-infinity, to_float(TypeParam::round(-std::numeric_limits<float>::max())));
  EXPECT_EQ(infinity, to_float(TypeParam::round(infinity)));
}

TEST(Float16, RoundsPast65504ToInfinityFromTheTieOn) {
  EXPECT_EQ(0x7bffU, to_float16(65519.996F).bits);
  EXPECT_EQ(0x7c00U, to_float16(65520.0F).bits);
}

TEST(Float16, HalfOfTheSmallestRoundsToZero) {
  EXPECT_EQ(0U, to_float16(0x1p-25F).bits);
  EXPECT_EQ(1U, to_float16(std::nextafter(0x1p-25F, 1.0F)).bits);
  EXPECT_EQ(0x8000U, to_float16(-1e-30F).bits);
}

}  // namespace
}  // namespace zero
