// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/median.h"

#include <gtest/gtest.h>

namespace zero {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoThere) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1}), 5);
  EXPECT_EQ(median({9, 1, 2}), 2);
  EXPECT_EQ(median({4, 100, 0, 2}), 3);
  EXPECT_EQ(median({7, 7, 1, 7}), 7);
}

}  // namespace
}  // namespace zero
