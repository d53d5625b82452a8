// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "tests/errors.h"
#include "text/added_tokens.h"

namespace zero {
namespace {

using ::testing::HasSubstr;

TEST(LongestMatch, IsThatOfEveryPatternTriedAtEveryPlace) {
  std::mt19937 random(7);
  const auto text_of = [&](std::size_t bytes) {
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    std::set<std::string> unique;
    for (std::size_t i = random() % 8; i > 0; --i) unique.insert(text_of(1 + random() % 6));
    const std::vector<std::string> patterns(unique.begin(), unique.end());
    const std::string text = text_of(random() % 60);
    const LongestMatch matcher({patterns.begin(), patterns.end()});
    auto matches = matcher.find(text);
    for (std::size_t at = 0; at < text.size(); ++at) {
      std::size_t longest = 0;
      for (const std::string& pattern : patterns) {
        if (text.compare(at, pattern.size(), pattern) == 0) {
          longest = std::max(longest, pattern.size());
        }
      }
      if (longest == 0) continue;
      ASSERT_FALSE(matches.empty());
      EXPECT_EQ(matches.back().begin, at);
      EXPECT_EQ(patterns[matches.back().pattern].size(), longest);
      matches.pop_back();
    }
    EXPECT_TRUE(matches.empty());
  }
}

// 3,000 tokens of 1 to 3,000 bytes: trying each length at each place would hash 140 GB.
TEST(AddedTokens, OfManyLengthsAreFoundInOnePass) {
  std::vector<AddedToken> tokens;
  for (std::uint32_t i = 1; i <= 2800; ++i) {
    tokens.push_back({.content = std::string(i, 'a') + "b", .id = i});
  }
  const AddedTokens added(tokens, "f.json: added_tokens");
  const std::string text(1U << 16U, 'a');
  EXPECT_EQ(added.split(text, {}).size(), 1U);
  const auto parts = added.split(text + "b", {});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].token, 2800U);
  tokens.push_back({.content = std::string(4U << 20U, 'x'), .id = 5000});
  EXPECT_THAT(error_of([&] { AddedTokens(tokens, "f.json: added_tokens"); }),
              HasSubstr("f.json: added_tokens: the tokens have 8"));
}

// A conversation of many messages has a range for each.
TEST(AddedTokens, ActInManyRangesInOnePass) {
  const AddedTokens added({{.content = "<x>", .id = 9, .special = true}}, "f.json: added_tokens");
  std::string text;
  std::vector<ByteRange> ranges;
  constexpr std::size_t kCount = 100'000;
  for (std::size_t i = 0; i < kCount; ++i) {
    ranges.push_back({text.size(), text.size() + 3});
    text += "<x><x>";
  }
  const auto parts = added.split(text, {ranges});
  ASSERT_EQ(parts.size(), 2 * kCount);
  EXPECT_EQ(parts[0].token, 9U);
  EXPECT_FALSE(parts[1].token);
}

}  // namespace
}  // namespace zero
