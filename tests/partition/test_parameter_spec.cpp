// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "partition/parameter_spec.h"
#include "tests/partition/units.h"

namespace zero::testing {
namespace {

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  return ParameterSpec{.name = "weight", .shape = shape}.count();
}

TEST(ParameterSpec, CountIsTheProductOfTheDimensions) {
  EXPECT_EQ(count_of({}), 1);
  EXPECT_EQ(count_of({7}), 7);
  EXPECT_EQ(count_of({2, 3, 5}), 30);
  EXPECT_EQ(count_of({1LL << 31, 1LL << 31}), 1LL << 62);
}

TEST(ParameterSpec, OneZeroDimensionGivesZeroElementsWhateverTheOthersAre) {
  EXPECT_EQ(count_of({0}), 0);
  EXPECT_EQ(count_of({1LL << 62, 1LL << 62, 0}), 0);
}

TEST(ParameterSpec, ANegativeDimensionIsNamed) {
  EXPECT_EQ(error_of([] {
              count_of({4, -3, 0});
            }),
            "parameter \"weight\": shape [4, -3, 0] has the negative dimension -3; "
            "dimensions are 0 or more");
}

TEST(ParameterSpec, TooManyElementsAreRefused) {
  EXPECT_EQ(error_of([] {
              count_of({1LL << 32, 1LL << 31});
            }),
            "parameter \"weight\": shape [4294967296, 2147483648] has more elements than 64 bits "
            "can count; split the parameter");
}

}  // namespace
}  // namespace zero::testing
