// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/message_text.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace zero {
namespace {

TEST(DecimalBytes, HaveTheUnitThatSuitsThem) {
  EXPECT_EQ(decimal_bytes(0), "0.0 kB");
  EXPECT_EQ(decimal_bytes(512), "0.5 kB");
  EXPECT_EQ(decimal_bytes(1'500'000), "1.5 MB");
  EXPECT_EQ(decimal_bytes(12'345'678'901), "12.3 GB");
}

TEST(MessageText, CountsHaveTheirPlural) {
  EXPECT_EQ(counted(0, "request"), "0 requests");
  EXPECT_EQ(counted(1, "request"), "1 request");
  EXPECT_EQ(counted(2, "GPU"), "2 GPUs");
}

TEST(WaitText, IsOfUseForShortOnesToo) {
  EXPECT_EQ(wait_text(3.21), "3.2 s");
  EXPECT_EQ(wait_text(0.1), "0.1 s");
  EXPECT_EQ(wait_text(0.04), "40 ms");
  EXPECT_EQ(wait_text(0), "0 ms");
}

TEST(TimeoutText, IsExact) {
  using std::chrono::milliseconds;
  EXPECT_EQ(timeout_text(milliseconds(10'000)), "10 s");
  EXPECT_EQ(timeout_text(milliseconds(1500)), "1500 ms");
  EXPECT_EQ(timeout_text(milliseconds(0)), "0 ms");
}

TEST(RanksText, JoinsRanksThatFollowEachOther) {
  EXPECT_EQ(ranks_text({}), "no rank");
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({5, 0, 1, 2, 7}), "ranks 0-2, 5, 7");
}

TEST(Printable, TextHoldsNoCommands) {
  EXPECT_EQ(printable_text("a\n\tb\x1b[2J\x7f\r"), "a\n\tb?[2J??");
  EXPECT_EQ(printable_text("\xc3\xa9\xe2\x82\xac"), "\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(printable_text("\xc3(\xff\xc2\x9b"), "?(???");
  EXPECT_EQ(printable_text(std::string(5000, 'x')), std::string(5000, 'x'));
}

// Between U+202D and U+202F, U+2065 and U+206A: the first and last of each kind.
TEST(Printable, TextIsShownInItsOwnOrder) {
  for (const char* const character : {"\u202a", "\u202d", "\u202e", "\u2066", "\u2068", "\u2069"}) {
    const std::string name = "layer" + std::string(character) + "gpj.exe";
    EXPECT_EQ(printable_line(name), "layer?gpj.exe");
    EXPECT_EQ(printable_text(name + "\n"), "layer?gpj.exe\n");
  }
  for (const char* const mark : {"\u061c", "\u200e", "\u200f"}) {
    EXPECT_EQ(printable_line(mark), "?");
    EXPECT_EQ(printable_text(mark), mark) << "Arabic and Hebrew answers have them";
  }
  for (const char* const other :
       {"\u061b", "\u200d", "\u2029", "\u202f", "\u2065", "\u206a", "\u05d0\u0627", "\U0001202e"}) {
    EXPECT_EQ(printable_line(other), other);
  }
}

TEST(Printable, ALineIsOneAndShort) {
  EXPECT_EQ(printable_line(std::string_view("a\n\t\0\xc3\xa9\xff", 7)), "a???\xc3\xa9?");
  EXPECT_EQ(printable_line(std::string(1024, 'x')), std::string(1024, 'x'));
  EXPECT_EQ(printable_line(std::string(1025, 'x')), std::string(1024, 'x') + "...");
  EXPECT_EQ(printable_line(""), "");
}

}  // namespace
}  // namespace zero
