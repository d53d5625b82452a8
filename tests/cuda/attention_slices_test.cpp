// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/attention_slices.h"

#include <gtest/gtest.h>

#include <vector>

namespace zero::cuda {
namespace {

/// The slices that are tried for a library that takes `each` bytes a sequence, and the last.
std::vector<std::int64_t> tried(std::int64_t batch, std::int64_t first, std::int64_t most,
                                std::int64_t each) {
  std::vector<std::int64_t> counts;
  const std::int64_t taken = plan_that_fits(
      batch, first, most,
      [&](std::int64_t count) {
        counts.push_back(count);
        return count;
      },
      [&](std::int64_t count) { return count * each; });
  EXPECT_EQ(taken, counts.back());
  return counts;
}

TEST(AttentionSlices, AreTheFirstThatFit) {
  EXPECT_EQ(tried(32, 32, 1000, 30), (std::vector<std::int64_t>{32}));
  EXPECT_EQ(tried(32, 32, 1000, 31), (std::vector<std::int64_t>{32}));
}

TEST(AttentionSlices, AreHalvedUntilTheWorkspaceFits) {
  EXPECT_EQ(tried(32, 32, 1000, 32), (std::vector<std::int64_t>{32, 16}));
  EXPECT_EQ(tried(32, 16, 1000, 200), (std::vector<std::int64_t>{16, 8, 4}));
  EXPECT_EQ(tried(1, 1, 1000, 1001), (std::vector<std::int64_t>{1})) << "none fits";
  EXPECT_EQ(tried(4, 4, 1000, 5000), (std::vector<std::int64_t>{4, 2, 1})) << "none fits";
}

TEST(AttentionSlices, DivideTheBatch) {
  EXPECT_EQ(divisor_up_to(32, 40), 32);
  EXPECT_EQ(divisor_up_to(32, 31), 16);
  EXPECT_EQ(divisor_up_to(15, 7), 5);
  EXPECT_EQ(divisor_up_to(7, 6), 1);
  EXPECT_EQ(divisor_up_to(7, 0), 1);
  EXPECT_EQ(tried(15, 15, 1000, 100), (std::vector<std::int64_t>{15, 5}));
}

}  // namespace
}  // namespace zero::cuda
