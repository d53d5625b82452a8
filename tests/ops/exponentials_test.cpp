// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/exponentials.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/only_target.h"

namespace zero::testing {
namespace {

std::vector<float> values_below(float largest, std::size_t count) {
  std::mt19937 random(5);
  std::exponential_distribution<float> distance(0.05F);
  std::vector<float> values(count);
  for (float& value : values) value = largest - distance(random);
  values.front() = largest;
  values[1] = -std::numeric_limits<float>::infinity();
  values[2] = largest - 1000;
  return values;
}

TEST(Exponentials, AreThoseOfTheMathematicsLibraryOnAllInstructionSetsAlike) {
  const std::vector<float> values = values_below(12.5F, 1003);
  for (const double temperature : {1.0, 0.7, 2.0}) {
    std::vector<double> first;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      std::vector<double> found(values.size(), -1);
      exponentials(values, 12.5, temperature, found);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double x = (values[i] - 12.5) / temperature;
        const double expected = x > -700 ? std::exp(x) : 0;
        ASSERT_NEAR(expected, found[i], 5e-16 * expected) << values[i];
      }
      if (first.empty()) first = found;
      ASSERT_EQ(first, found) << hwy::TargetName(target);
    }
  }
}

TEST(Exponentials, AreSummedAlikeOnAllInstructionSets) {
  std::mt19937 random(6);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const std::size_t count : {0, 1, 7, 8, 9, 1003}) {
    std::vector<double> weights(count);
    double plain = 0;
    for (double& weight : weights) plain += weight = uniform(random);
    std::vector<double> sums;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      sums.push_back(sum_by_lanes(weights));
      EXPECT_NEAR(plain, sums.back(), 1e-12 * plain);
      EXPECT_EQ(sums.front(), sums.back());
    }
  }
}

TEST(Exponentials, ExtremesHaveNaNsBeyondInfinities) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const OnlyTarget only(target);
    std::vector<float> values = values_below(3, 100);
    EXPECT_EQ(3, extremes_of(values).largest);
    EXPECT_EQ(-kInfinity, extremes_of(values).least);
    values[70] = kInfinity;
    EXPECT_EQ(kInfinity, extremes_of(values).largest);
    values[71] = kNaN;
    EXPECT_TRUE(std::isnan(extremes_of(values).largest));
    values[72] = -kNaN;
    EXPECT_TRUE(std::isnan(extremes_of(values).least));
    EXPECT_EQ(-2, extremes_of(std::vector<float>{-2, -2}).largest);
  }
}

}  // namespace
}  // namespace zero::testing
