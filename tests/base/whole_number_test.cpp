// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/whole_number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace zero::testing {
namespace {

TEST(WholeNumber, IsAllOfATextWithinItsRange) {
  EXPECT_EQ(whole_number("8", 1, 1024), 8);
  EXPECT_EQ(whole_number("1024", 1, 1024), 1024);
  EXPECT_EQ(whole_number("-3", -4, 4), -3);
  for (const char* wrong :
       {"", " 8", "8 ", "+8", "8x", "0x8", "8.0", "1e3", "0", "1025", "99999999999999999999"}) {
    EXPECT_EQ(whole_number(wrong, 1, 1024), std::nullopt) << wrong;
  }
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(whole_number("18446744073709551615", 0, kMost), kMost);
  EXPECT_EQ(whole_number("-1", 0, kMost), std::nullopt);  // does not wrap
}

TEST(NumberBehind, IsOfTheLineThatBeginsWithTheKey) {
  const char* const text = "VmPeak:\t    5000 kB\nOf VmRSS: 1\nVmRSS:\t    2048 kB\nState:\tR\n";
  EXPECT_EQ(number_behind(text, "VmPeak:"), 5000);
  EXPECT_EQ(number_behind(text, "VmRSS:"), 2048);
  EXPECT_EQ(number_behind(text, "State:"), std::nullopt);
  EXPECT_EQ(number_behind(text, "VmSwap:"), std::nullopt);
  EXPECT_EQ(number_behind("oom_kill", "oom_kill"), std::nullopt);
}

}  // namespace
}  // namespace zero::testing
