// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/json_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace zero {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const char* const kText =
    R"({"b": [1, -2, 2.5, null, true, "x"], "a": {"d": {}, "c": []}, "e": [[]]})";

TEST(JsonTree, IsTheLibrarysTree) {
  for (const char* text : {kText, "1", "\"x\"", "[]", " {} ", "[{\"a\": [{}]}, {}]"}) {
    EXPECT_EQ(parse_json_tree(text), json::parse(text)) << text;
    EXPECT_EQ(parse_ordered_tree(text)->dump(), ordered_json::parse(text).dump()) << text;
    EXPECT_EQ(read_json(text).value, json::parse(text)) << text;
  }
}

TEST(JsonTree, OfAKeyGivenTwiceTheLastValueCounts) {
  const char* const text = R"({"b": 1, "a": {"x": 2}, "b": [3]})";
  EXPECT_EQ(parse_json_tree(text), json::parse(text));
  EXPECT_EQ(parse_ordered_tree(text)->dump(), R"({"b":[3],"a":{"x":2}})");
  const ReadJson read = read_json(R"({"b": 1, "a": {"x": 2}, "c": {"x": 1, "x": 2}})");
  EXPECT_EQ(read.outcome, ReadJson::Outcome::key_twice);
  EXPECT_EQ(read.what, "x");
}

TEST(JsonTree, IsNoneWhereTheTextIsNoJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\"}", "1 2", "[1e999]", "nul", "{\"a\": 1}}"}) {
    EXPECT_FALSE(parse_json_tree(text)) << text;
    EXPECT_FALSE(parse_ordered_tree(text)) << text;
  }
  EXPECT_EQ(read_json("[1,\n 2,]").outcome, ReadJson::Outcome::not_json);
  EXPECT_EQ(read_json("[1,\n 2,]").byte, 8U);
  EXPECT_EQ(read_json("[1e999]").outcome, ReadJson::Outcome::bad_number);
}

TEST(JsonTree, HasAHundredLevelsAtMost) {
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_TRUE(parse_json_tree(nested(100)));
  EXPECT_FALSE(parse_json_tree(nested(101)));
  EXPECT_FALSE(parse_ordered_tree(nested(101)));
  EXPECT_EQ(read_json(nested(1'000'000)).outcome, ReadJson::Outcome::deep);
}

/// 40,000 items: a reader that looked at all before each would look 800 million times.
TEST(JsonTree, OfManyItemsIsReadInOnePass) {
  constexpr int kCount = 40'000;
  std::string list = "[";
  std::string object = "{";
  for (int i = 0; i < kCount; ++i) {
    list += i == 0 ? "{}" : ",{}";
    object += fmt::format("{}\"key{}\":{{}}", i == 0 ? "" : ",", i);
  }
  list += "]";
  object += "}";
  for (const std::string& text : {list, object}) {
    EXPECT_EQ(parse_json_tree(text)->size(), kCount);
    EXPECT_EQ(parse_ordered_tree(text)->size(), kCount);
    EXPECT_EQ(read_json(text).value.size(), kCount);
  }
}

}  // namespace
}  // namespace zero
