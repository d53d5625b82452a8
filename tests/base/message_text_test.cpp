// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/message_text.h"

#include <gtest/gtest.h>

#include <string>

namespace zero {
namespace {

TEST(DecimalBytes, HaveTheUnitThatSuitsThem) {
  EXPECT_EQ(decimal_bytes(0), "0.0 kB");
  EXPECT_EQ(decimal_bytes(512), "0.5 kB");
  EXPECT_EQ(decimal_bytes(1'500'000), "1.5 MB");
  EXPECT_EQ(decimal_bytes(12'345'678'901), "12.3 GB");
}

TEST(Printable, TextHoldsNoCommands) {
  EXPECT_EQ(printable_text("a\n\tb\x1b[2J\x7f\r"), "a\n\tb?[2J??");
  EXPECT_EQ(printable_text("\xc3\xa9\xe2\x82\xac"), "\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(printable_text("\xc3(\xff\xc2\x9b"), "?(???");
  EXPECT_EQ(printable_text(std::string(5000, 'x')), std::string(5000, 'x'));
}

TEST(Printable, ALineIsOneAndShort) {
  EXPECT_EQ(printable_line(std::string_view("a\n\t\0\xc3\xa9\xff", 7)), "a???\xc3\xa9?");
  EXPECT_EQ(printable_line(std::string(1024, 'x')), std::string(1024, 'x'));
  EXPECT_EQ(printable_line(std::string(1025, 'x')), std::string(1024, 'x') + "...");
  EXPECT_EQ(printable_line(""), "");
}

}  // namespace
}  // namespace zero
