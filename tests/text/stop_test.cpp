// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/errors.h"
#include "text/text_stream.h"

namespace zero {
namespace {

/// The text before the stop string that is complete first, found by trying each beginning.
std::string expected_of(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 0; end <= text.size(); ++end) {
    const std::string begun = text.substr(0, end);
    std::size_t longest = 0;
    for (const std::string& stop : stops) {
      if (begun.ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return begun.substr(0, end - longest);
  }
  return text;
}

TEST(StopStrings, EndTheTextHoweverItIsCut) {
  std::mt19937 random(1);
  const auto draw = [&](std::size_t least, std::size_t most) {
    return least + random() % (most - least + 1);
  };
  const auto word = [&](std::size_t length) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += "ab\n"[draw(0, 2)];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    std::size_t longest = 1;
    for (std::size_t i = draw(0, 3); i > 0; --i) {
      stops.push_back(word(draw(1, 6)));
      longest = std::max(longest, stops.back().size());
    }
    const std::string text = word(draw(0, 40));
    StopStrings filter(stops);
    std::string shown;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t part = draw(1, 5);
      shown += filter.push(text.substr(at, part));
      at = std::min(text.size(), at + part);
      ASSERT_TRUE(filter.stopped() || at - shown.size() < longest) << "keeps too much";
    }
    shown += filter.finish();
    ASSERT_EQ(shown, expected_of(text, stops)) << text;
    stopped += filter.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 1000);
  EXPECT_LT(stopped, 2900);
}

TEST(StopStrings, NothingFollowsAStop) {
  StopStrings filter({"END"});
  EXPECT_EQ(filter.push("a E"), "a ");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("Dxyz"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

TEST(StopStrings, AnEmptyOneIsRefused) {
  EXPECT_EQ(error_of([] {
              StopStrings({"a", ""});
            }),
            "a stop string is empty; give each at least one byte, or none");
}

}  // namespace
}  // namespace zero
