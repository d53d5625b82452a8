// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/checked_math.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/errors.h"

namespace zero {
namespace {

TEST(CheckedMath, DivisionRoundsUp) {
  EXPECT_EQ(0, div_ceil(0, 4));
  EXPECT_EQ(1, div_ceil(1, 4));
  EXPECT_EQ(1, div_ceil(4, 4));
  EXPECT_EQ(2, div_ceil(5, 4));
  EXPECT_EQ(8, round_up(5, 4));
  EXPECT_EQ(0, round_up(0, 64));
}

TEST(CheckedMath, ExactDivisionRefusesARest) {
  EXPECT_EQ(3, div_exact(12, 4));
  EXPECT_EQ("13 is not a multiple of 4", error_of([] { div_exact(13, 4); }));
  EXPECT_EQ("13 is not a multiple of 0", error_of([] { div_exact(13, 0); }));
}

TEST(CheckedMath, ProductsBeyond63BitsAreRefused) {
  EXPECT_EQ(std::int64_t{1} << 62, checked_mul(std::int64_t{1} << 31, std::int64_t{1} << 31));
  EXPECT_EQ("size 4294967296 x 4294967296 does not fit 64 bits",
            error_of([] { checked_mul(std::int64_t{1} << 32, std::int64_t{1} << 32); }));
}

TEST(CheckedMath, NarrowingRefusesAChangeOfValue) {
  EXPECT_EQ(7, narrow<std::int8_t>(std::int64_t{7}));
  EXPECT_EQ("value 300 does not fit an integer of 1 bytes",
            error_of([] { narrow<std::int8_t>(300); }));
  EXPECT_EQ("value -1 does not fit an integer of 4 bytes",
            error_of([] { narrow<std::uint32_t>(-1); }));
}

TEST(CheckedMath, ErrorsCarryTheFormattedMessage) {
  EXPECT_EQ("[rank 3] 4 of 5", error_of([] { fail("[rank {}] {} of {}", 3, 4, 5); }));
  EXPECT_EQ("no error", error_of([] { ZERO_CHECK(true, "never built"); }));
}

}  // namespace
}  // namespace zero
