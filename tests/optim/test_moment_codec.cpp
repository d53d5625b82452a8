// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Codes of 8-bit moments and stochastic rounding of bf16 moments.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "optim/cpu/small_moments.h"
#include "tests/optim/case.h"

namespace zero::testing {
namespace {

using Block = std::array<float, kMomentBlock>;

struct Encoded {
  std::array<std::uint8_t, kMomentBlock> codes{};
  float scale = 0;
};

CodedMoment view_of(int moment, Encoded& block) {
  return {moment, View::of(std::span<std::uint8_t>(block.codes)),
          View::of(std::span(&block.scale, 1))};
}

Encoded encoded(int moment, const Block& values) {
  Encoded result;
  cpu::encode_moment(values.data(), view_of(moment, result));
  return result;
}

Block decoded(int moment, Encoded from) {
  Block values{};
  cpu::decode_moment(view_of(moment, from), values.data());
  return values;
}

/// The values of all codes for a scale of 1, by the code's byte.
Block map_of(int moment) {
  Encoded all{.scale = 1};
  for (std::size_t i = 0; i < all.codes.size(); ++i) all.codes[i] = static_cast<std::uint8_t>(i);
  return decoded(moment, all);
}

/// The bytes that stand for a value, in ascending order of the values.
std::vector<std::uint8_t> used_codes(int moment) {
  std::vector<std::uint8_t> codes;
  for (int n = moment == 0 ? -127 : 0; n <= (moment == 0 ? 127 : 255); ++n)
    codes.push_back(static_cast<std::uint8_t>(n));
  return codes;
}

class Codec : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Moments, Codec, ::testing::Values(0, 1));

TEST_P(Codec, MapIsMonotoneWithTwiceAsManyValuesInEachRangeOfFourOctaves) {
  const int moment = GetParam();
  const Block map = map_of(moment);
  const std::vector<std::uint8_t> codes = used_codes(moment);
  std::array<int, 20> counts{};  // of values up to 1, 1/2, 1/4, ...
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (i > 0) {
      ASSERT_LT(map[codes[i - 1]], map[codes[i]]);
    }
    const float value = map[codes[i]];
    if (value > 0x1p-20F) ++counts.at(static_cast<std::size_t>(-std::ilogb(value * 0.99999F) - 1));
  }
  for (std::size_t i = 0; i < counts.size(); ++i)
    EXPECT_EQ(counts[i], (moment + 1) * (16 >> (i / 4))) << i;
  EXPECT_EQ(map[codes.back()], 1.0F);
  EXPECT_EQ(map[codes.front()], moment == 0 ? -1.0F : 0.0F);
  EXPECT_EQ(map[0], 0.0F);
}

TEST_P(Codec, EveryCodeComesBackForAnyScale) {
  const int moment = GetParam();
  const std::vector<std::uint8_t> codes = used_codes(moment);
  for (const float scale : {0x1p-96F, 1.3e-29F, 3.7e-8F, 1.0F, 0.9999999F, 1234.5F, 3e38F,
                            std::numeric_limits<float>::max()}) {
    Encoded first{.scale = scale};
    std::ranges::copy(codes, first.codes.begin());
    const Encoded again = encoded(moment, decoded(moment, first));
    EXPECT_EQ(again.codes, first.codes) << scale;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(again.scale), std::bit_cast<std::uint32_t>(scale));
  }
}

TEST_P(Codec, TakesTheNearestValueOfTheMap) {
  const int moment = GetParam();
  const Block map = map_of(moment);
  const std::vector<std::uint8_t> codes = used_codes(moment);
  std::mt19937_64 random(5);
  std::uniform_real_distribution<float> exponent(-8, 0);
  std::uniform_real_distribution<float> scales(-28, 30);
  for (int round = 0; round < 400; ++round) {
    const float scale = std::pow(10.0F, scales(random));
    Block values{};
    for (std::size_t i = 1; i < values.size(); ++i) {
      const bool negative = moment == 0 && random() % 2 == 0;
      values[i] = scale * std::pow(10.0F, exponent(random)) * (negative ? -1.0F : 1.0F);
    }
    // Some beside a middle between two values.
    for (std::size_t i = 100; i < 200; ++i) {
      const std::size_t at = random() % (codes.size() - 1);
      const double middle = (double{map[codes[at]]} + map[codes[at + 1]]) / 2;
      values[i] = static_cast<float>(scale * middle * (i % 2 == 0 ? 1.00002 : 0.99998));
    }
    values[0] = scale;
    const Encoded result = encoded(moment, values);
    ASSERT_EQ(result.scale, scale);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double y = double{values[i]} / scale;
      const double taken = map[result.codes[i]];
      double best = std::numeric_limits<double>::max();
      for (const std::uint8_t code : codes) {
        if (moment == 1 && code == 0 && y > 0) continue;  // never from above 0 to 0
        best = std::min(best, std::abs(y - map[code]));
        // Among the lowest three values not the nearest, but one of the two beside.
        ASSERT_FALSE(std::min(y, taken) < map[code] && map[code] < std::max(y, taken)) << y;
      }
      if (std::abs(y) < 0x1p-20) continue;
      ASSERT_LE(std::abs(y - taken), best + 1e-6 * std::abs(y)) << y;
    }
  }
}

TEST_P(Codec, BlocksOfZerosTinyAndNonFiniteValues) {
  const int moment = GetParam();
  Block values{};
  Encoded result = encoded(moment, values);
  EXPECT_EQ(result.scale, 0.0F);
  EXPECT_EQ(decoded(moment, result), values);
  values[7] = 0x1p-101F;
  result = encoded(moment, values);
  EXPECT_EQ(result.scale, 0.0F);
  EXPECT_EQ(decoded(moment, result), Block{});
  values[9] = 1;
  result = encoded(moment, values);
  EXPECT_EQ(decoded(moment, result)[7], moment == 0 ? 0.0F : 15 * 0x1p-32F);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    values[9] = bad;
    result = encoded(moment, values);
    for (const float value : decoded(moment, result)) ASSERT_TRUE(std::isnan(value));
    const Encoded again = encoded(moment, decoded(moment, result));
    EXPECT_EQ(again.codes, result.codes);
    EXPECT_TRUE(std::isnan(again.scale));
  }
}

TEST_P(Codec, PartsOfBlocksDecodeAsTheWhole) {
  const int moment = GetParam();
  const State some = some_state(1000, {}, 3);
  std::vector<float> values(1000);
  for (std::int64_t i = 0; i < 1000; ++i)
    values[static_cast<std::size_t>(i)] = moment == 0 ? some.moment0.get(i) : some.moment1.get(i);
  std::vector<std::uint8_t> codes(1000);
  std::array<float, 4> scales{};
  const CodedMoment coded{moment, View::of(std::span(codes)), View::of(std::span<float>(scales))};
  cpu::encode_moment(values.data(), coded);
  std::vector<float> whole(1000);
  cpu::decode_moment(coded, whole.data());
  for (const std::int64_t begin : {0, 1, 255, 256, 257, 700, 999}) {
    for (const std::int64_t end : {begin + 1, begin + 100, begin + 513, std::int64_t{1000}}) {
      if (end > 1000) continue;
      std::vector<float> part(static_cast<std::size_t>(end - begin));
      // A part of a part, which begins within a block.
      cpu::decode_moment(
          coded.slice(begin / 2, 1000 - begin / 2).slice(begin - begin / 2, end - begin),
          part.data());
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin));
    }
  }
}

/// Both moments that an update stores, of gradients g: g, and (1 + g^2) / 2.
class StochasticRounding : public ::testing::Test {
 protected:
  using Moments = std::array<std::vector<float>, 2>;
  Moments rounded(const LogicalElements& elements, std::int64_t step,
                  std::vector<float> gradients) {
    const std::int64_t count = std::ssize(gradients);
    Elements master(DType::fp32, count);
    std::array moments{Elements(DType::bf16, count), Elements(DType::bf16, count)};
    for (std::int64_t i = 0; i < count; ++i) moments[1].set(i, 1);
    optimizer_->update(device_->compute(), {.master = master.view(),
                                            .moments = {moments[0].view(), moments[1].view()},
                                            .gradient = View::of(std::span(gradients)),
                                            .compute = {},
                                            .step = step,
                                            .elements = elements});
    Moments result;
    for (std::size_t m = 0; m < 2; ++m)
      for (std::int64_t i = 0; i < count; ++i) result[m].push_back(moments[m].get(i));
    return result;
  }

 private:
  std::unique_ptr<Device> device_ = cpu::open();
  std::unique_ptr<Optimizer> optimizer_ =
      make_optimizer({.beta1 = 0, .beta2 = 0.5, .moments = MomentFormat::bf16}, *device_);
};

TEST_F(StochasticRounding, KeepsValuesOfBf16AndStaysFinite) {
  std::vector<float> all;
  for (std::uint32_t half = 0; half < 0x10000; ++half)
    all.push_back(std::bit_cast<float>(half << 16));
  const std::vector<float> result = rounded({.parameter = 3}, 9, all)[0];
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::isnan(all[i])) {
      ASSERT_TRUE(std::isnan(result[i]));
    } else {
      ASSERT_EQ(result[i], all[i]);
    }
  }
  const float largest = std::numeric_limits<float>::max();
  const Moments cut = rounded({}, 1, std::vector<float>(64, -largest));
  for (const float value : cut[0]) ASSERT_EQ(std::bit_cast<std::uint32_t>(value), 0xff7f0000U);
}

TEST_F(StochasticRounding, IsUnbiasedOverElementsStepsParametersAndMoments) {
  constexpr std::size_t kCount = 1 << 16;
  for (const float fraction : {0.003F, 0.25F, 0.5F, 0.9F}) {
    const std::vector<float> values(kCount, 1 + fraction / 128);  // between 1 and 1 + 1/128
    const double fractions[] = {fraction, fraction + fraction * fraction / 256};  // of each moment
    const double bound = 5 * std::sqrt(fraction * (1 - fraction) / kCount);
    for (const auto& [parameter, step] : {std::pair{1U, 1}, {2U, 1}, {1U, 2}}) {
      const Moments moments = rounded({.parameter = parameter}, step, values);
      for (std::size_t m = 0; m < 2; ++m) {
        double up = 0;
        for (const float value : moments[m]) up += (double{value} - 1) * 128;
        EXPECT_NEAR(up / kCount, fractions[m], bound);
      }
    }
    double up = 0;  // over steps, of one element
    for (int step = 1; step <= 1 << 12; ++step)
      up += (rounded({.parameter = 1, .first = 77}, step, {values[0]})[0][0] - 1) * 128.0;
    EXPECT_NEAR(up / (1 << 12), fraction, 4 * bound);
  }
}

/// Draws of other elements, steps, parameters or moments agree as often as chance has it.
TEST_F(StochasticRounding, DrawsAreIndependent) {
  constexpr std::size_t kCount = 1 << 16;
  const std::vector<float> values(kCount, 1 + 0.5F / 128);
  const auto [first, second] = rounded({.parameter = 1}, 1, values);
  const auto agreeing = [&](const std::vector<float>& other) {
    int same = 0;
    for (std::size_t i = 0; i < kCount; ++i) same += first[i] == other[i] ? 1 : 0;
    return same;
  };
  const double half = kCount / 2.0;
  const double bound = 5 * std::sqrt(kCount) / 2;
  EXPECT_EQ(agreeing(rounded({.parameter = 1}, 1, values)[0]), kCount);
  EXPECT_NEAR(agreeing(second), half, bound);
  EXPECT_NEAR(agreeing(rounded({.parameter = 2}, 1, values)[0]), half, bound);
  EXPECT_NEAR(agreeing(rounded({.parameter = 1}, 2, values)[0]), half, bound);
  EXPECT_NEAR(agreeing(rounded({.parameter = 1, .first = 1}, 1, values)[0]), half, bound);
  const std::int64_t far = std::int64_t{1} << 32;
  EXPECT_NEAR(agreeing(rounded({.parameter = 1, .first = far}, 1, values)[0]), half, bound);
}

TEST_F(StochasticRounding, FollowsTheLogicalElements) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> whole(std::size_t{40} * 30);
  for (float& value : whole) value = normal(random);
  const std::vector<float> expected = rounded({.parameter = 5}, 3, whole)[0];
  // Columns 7 to 19 of a matrix of 40 rows and 30 columns.
  std::vector<float> slice;
  for (std::size_t row = 0; row < 40; ++row)
    slice.insert(slice.end(), whole.begin() + static_cast<std::ptrdiff_t>(row * 30 + 7),
                 whole.begin() + static_cast<std::ptrdiff_t>(row * 30 + 20));
  const auto result = rounded({.parameter = 5, .first = 7, .run = 13, .stride = 30}, 3, slice)[0];
  for (std::size_t i = 0; i < slice.size(); ++i)
    ASSERT_EQ(result[i], expected[i / 13 * 30 + 7 + i % 13]);
  // Numbers beyond 2^32 begin anew within a vector.
  const std::int64_t edge = (std::int64_t{1} << 32) - 5;
  const std::vector<float> over = rounded({.parameter = 5, .first = edge}, 3, whole)[0];
  for (const std::size_t i : {4, 5, 6, 700}) {
    const std::int64_t at = edge + static_cast<std::int64_t>(i);
    ASSERT_EQ(over[i], rounded({.parameter = 5, .first = at}, 3, {whole[i]})[0][0]);
  }
}

}  // namespace
}  // namespace zero::testing
