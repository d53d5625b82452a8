// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "optim/optimizer.h"
#include "tests/optim/case.h"

namespace zero::testing {
namespace {

TEST(ClipFactor, BringsALargeNormToTheLimit) {
  EXPECT_EQ(clip_factor(4.0, 1.0), static_cast<float>(1.0 / (4.0 + 1e-6)));
  EXPECT_EQ(clip_factor(1e-3, 1e-4), static_cast<float>(1e-4 / (1e-3 + 1e-6)));
}

TEST(ClipFactor, LeavesASmallNormAlone) {
  EXPECT_EQ(clip_factor(0.0, 1.0), 1.0F);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0F);
}

TEST(ClipFactor, AtTheLimitItIsBelowOneByPyTorchsMargin) {
  EXPECT_EQ(clip_factor(1.0, 1.0), static_cast<float>(1.0 / (1.0 + 1e-6)));
}

TEST(ClipFactor, ALimitOfZeroMeansNone) { EXPECT_EQ(clip_factor(1e9, 0.0), 1.0F); }

TEST(ClipFactor, NonFiniteNormsShow) {
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1.0), 0.0F);
  EXPECT_TRUE(std::isnan(clip_factor(std::numeric_limits<double>::quiet_NaN(), 1.0)));
}

TEST(ClipFactor, ANegativeLimitIsRefused) {
  EXPECT_EQ(error_of([] { clip_factor(1.0, -1.0); }),
            "gradient clipping: the limit is -1; expected a norm above 0, or 0 for none");
}

}  // namespace
}  // namespace zero::testing
