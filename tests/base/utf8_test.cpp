// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace zero {
namespace {

TEST(Utf8, EachCodePointGoesBothWays) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code == 0xd800) code = 0xe000;
    std::string text;
    append_utf8(text, code);
    ASSERT_FALSE(first_invalid_utf8(text)) << std::hex << static_cast<std::uint32_t>(code);
    ASSERT_EQ(utf8_start(text).bytes, text.size());
    ASSERT_EQ(code_point(text), code);
  }
}

TEST(Utf8, InvalidPartsAreReplacedAsInPython) {
  // bytes.decode(errors="replace") of Python 3.11.
  const std::string bad = "\ufffd";
  EXPECT_EQ(replace_invalid_utf8("a\xff\xfe z"), "a" + bad + bad + " z");
  EXPECT_EQ(replace_invalid_utf8("\xc0\x80"), bad + bad);            // overlong
  EXPECT_EQ(replace_invalid_utf8("\xe0\x80\x80"), bad + bad + bad);  // overlong
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80"), bad + bad + bad);  // surrogate
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\x91z"), bad + "z");  // cut short
  EXPECT_EQ(replace_invalid_utf8("\xe2\x82"), bad);
  EXPECT_EQ(replace_invalid_utf8("\xf1\x80\x41\x80"), bad + "A" + bad);
  EXPECT_EQ(replace_invalid_utf8("\xc3\xa9\xe4\xb8\x96"), "\u00e9\u4e16");
}

TEST(Utf8, TheFirstInvalidByteIsFound) {
  EXPECT_EQ(first_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("\u00e9a\U0001F44D"), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("\u00e9\xa9"), 2U);
  EXPECT_EQ(first_invalid_utf8("ab\xe2\x82"), 2U);
  EXPECT_EQ(first_invalid_utf8("ab\xe2(\x82"), 2U);
}

TEST(Utf8, AnUnfinishedCharacterMayBeCompleted) {
  using enum Utf8Start::Kind;
  EXPECT_EQ(utf8_start("\xe2\x82").kind, unfinished);
  EXPECT_EQ(utf8_start("\xe2\x82").bytes, 2U);
  EXPECT_EQ(utf8_start("\xe2\x28").kind, invalid);
  EXPECT_EQ(utf8_start("\xed\xa0").kind, invalid);
  EXPECT_EQ(utf8_start("\xf4\x8f").kind, unfinished);
}

}  // namespace
}  // namespace zero
