// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/config/configuration.h"
#include "tests/errors.h"
#include "tests/launch/read_configuration.h"

// The text of a configuration, as people write it.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(JsonText, CommentsAndTrailingCommasAreAccepted) {
  const auto value = parse_json_text(R"({
    // one
    "a": [1, 2,], # two
    /* three, } */ "b": "x // no comment, ]", "c": {"d": "\"#",},
  })",
                                     "c.json");
  EXPECT_EQ(value.dump(), R"({"a":[1,2],"b":"x // no comment, ]","c":{"d":"\"#"}})");
}

TEST(JsonText, ErrorsHaveLineAndColumn) {
  const std::string error =
      error_of([] { parse_json_text("{\n  \"a\": 1\n  \"b\": 2}", "c.json"); });
  EXPECT_THAT(error, AllOf(HasSubstr("c.json: line 3"), HasSubstr("not JSON")));
  EXPECT_THAT(error_of([] { parse_json_text("", "c.json"); }), HasSubstr("not JSON"));
  EXPECT_THAT(error_of([] { parse_json_text("{\"a\": \"unfinished", "c.json"); }),
              HasSubstr("not JSON"));
  EXPECT_THAT(error_of([] { parse_json_text("{,}", "c.json"); }), HasSubstr("not JSON"));
}

// DeepSpeed reads HJSON, and accelerate's files are YAML.
TEST(JsonText, OfAnotherLanguageSaysWhatToWrite) {
  const auto error = [](const char* text) {
    return error_of([&] { parse_json_text(text, "c.json"); });
  };
  EXPECT_THAT(
      error("{\"a\": {\n  \"b\": 1}\n  \"c\": 2}"),
      AllOf(HasSubstr("c.json: line 3"), EndsWith("; a comma is missing behind line 2 column 9")));
  EXPECT_THAT(error("{\"a\": [\"x\" /* , */ \"y\"]}"),
              EndsWith("; a comma is missing behind line 1 column 10"));
  EXPECT_THAT(error("{\"a\" \"b\"}"), Not(HasSubstr("comma is missing")));
  EXPECT_THAT(error("{\"a\": 1, \"b\": x \"c\"}"), Not(HasSubstr("comma is missing")));
  EXPECT_THAT(error("{\n  # mine\n  train_batch_size: 1\n}"),
              EndsWith("; write \"train_batch_size\" in double quotes, as all keys and texts"));
  EXPECT_THAT(
      error("# mine\ncompute_environment: LOCAL_MACHINE\ndeepspeed_config:\n  zero_stage: 3\n"),
      AllOf(HasSubstr("\"compute_environment:\" begins no JSON. YAML, as accelerate"),
            HasSubstr("offload_optimizer_device as "
                      "zero_optimization.offload_optimizer.device")));
}

TEST(JsonText, NumbersThatNoDoubleHoldsAreRefused) {
  EXPECT_THAT(error_of([] { parse_json_text("{\"gradient_clipping\": 1e999}", "c.json"); }),
              AllOf(HasSubstr("c.json: "), HasSubstr("1e999"), HasSubstr("correct the number")));
}

TEST(JsonText, DeepNestsAreRefusedWithoutTakingTheStack) {
  const auto nested = [](std::size_t depth) {
    return "{\"a\": " + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_EQ(parse_json_text(nested(50), "c.json").size(), 1U);
  EXPECT_EQ(error_of([&] { parse_json_text(nested(1'000'000), "c.json"); }),
            "c.json: objects and lists are nested deeper than 100 levels; take some out");
  EXPECT_THAT(refusal("", {"run.steps=" + std::string(100'000, '[') + std::string(100'000, ']')}),
              HasSubstr("--set"));
}

TEST(JsonText, DuplicateKeysAreRefused) {
  EXPECT_THAT(error_of([] { parse_json_text(R"({"a": {"b": 1, "b": 2}})", "c.json"); }),
              HasSubstr("c.json: key \"b\" is given twice"));
  EXPECT_THAT(error_of([] { parse_json_text(R"({"a\nb": 1, "a\nb": 2})", "c.json"); }),
              HasSubstr("c.json: key \"a?b\" is given twice"));
  EXPECT_EQ(parse_json_text(R"({"a": {"b": 1}, "c": {"b": 2}})", "c.json").size(), 2U);
}

TEST(JsonText, MissingFileIsNamed) {
  EXPECT_THAT(error_of([] { read_json_file("/nowhere/c.json"); }),
              AllOf(HasSubstr("/nowhere/c.json"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace zero::testing
