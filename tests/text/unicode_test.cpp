// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/unicode.h"

#include <gtest/gtest.h>

#include "tests/errors.h"

namespace zero::testing {
namespace {

// Classes: acute 230, cedilla 202, dot below 220.
TEST(Composed, OrdersMarksByClassAndKeepsTheOrderWithinOne) {
  EXPECT_EQ(composed("plain"), "plain");
  EXPECT_EQ(composed("e\u0301"), "\u00e9");
  EXPECT_EQ(composed("a\u0301\u0323"), "\u1ea1\u0301");
  EXPECT_EQ(composed("c\u0301\u0327 x\u0301\u0300"), "\u1e09 x\u0301\u0300");
  EXPECT_EQ(composed("x\u0301\u0300\u0323\u0327"), "x\u0327\u0323\u0301\u0300");
  EXPECT_EQ(composed("\u0301\u0323"), "\u0323\u0301");  // behind nothing
  EXPECT_NE(error_of([] { composed("\u00e9\xff"); }), "no error");
}

TEST(Composed, AMillionMarksTakeNoTimeToSpeakOf) {
  std::string text = "a";
  std::string below;
  std::string above;
  for (int i = 0; i < 500000; ++i) {
    text += "\u0301\u0316";
    below += "\u0316";
    above += i == 0 ? "" : "\u0301";
  }
  EXPECT_EQ(composed(text), "\u00e1" + below + above);
}

}  // namespace
}  // namespace zero::testing
