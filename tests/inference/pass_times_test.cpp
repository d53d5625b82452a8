// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/pass_times.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace zero::testing {
namespace {

TEST(PassTimes, AreAverages) {
  PassTimes times;
  EXPECT_EQ(times.passes(), 0);
  EXPECT_EQ(times.seconds(), 0);
  EXPECT_EQ(times.rows_for(1), std::nullopt);
  times.add(10, 1, 3);
  times.add(2, 2, 5);
  EXPECT_EQ(times.passes(), 2);
  EXPECT_EQ(times.rows(), 6);
  EXPECT_EQ(times.computing(), 1.5);
  EXPECT_EQ(times.seconds(), 4);
}

TEST(PassTimes, LieOnALineOverTheirRows) {
  PassTimes times;
  for (const int rows : {100, 1, 1, 4, 30}) times.add(rows, 0.5 + 0.25 * rows, 9);
  EXPECT_NEAR(times.rows_for(0.5 + 0.25 * 64).value(), 64, 1e-6);
  EXPECT_NEAR(times.rows_for(0.75).value(), 1, 1e-6);
}

// With nothing to draw a line through, time is taken to be in proportion.
TEST(PassTimes, OfEqualRowsAreInProportion) {
  PassTimes times;
  for (int i = 0; i < 7; ++i) times.add(3, 0.3, 0.5);
  EXPECT_NEAR(times.rows_for(0.9).value(), 9, 1e-6);
  times.add(1, 0.9, 0.9);  // a line that falls
  EXPECT_NEAR(times.rows_for(2 * times.computing()).value(), 2 * times.rows(), 1e-6);
}

}  // namespace
}  // namespace zero::testing
