// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/checked_value.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/read_configuration.h"

// The forms in which people write a value.
namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST(Configuration, SizesMayBeWrittenAsFloats) {
  EXPECT_EQ(read(R"("zero_optimization": {"reduce_bucket_size": 5e8})")
                .integer("zero_optimization.reduce_bucket_size"),
            500000000);
  EXPECT_THAT(refusal(R"("zero_optimization": {"reduce_bucket_size": 1.5})"),
              HasSubstr("c.json: zero_optimization.reduce_bucket_size: found 1.5, expected a whole "
                        "number from 0"));
  EXPECT_THAT(refusal(R"("zero_optimization": {"reduce_bucket_size": 1e30})"),
              HasSubstr("found 1e+30"));
  EXPECT_THAT(refusal(R"("zero_optimization": {"reduce_bucket_size": 18446744073709551615})"),
              HasSubstr("found 18446744073709551615"));
  EXPECT_EQ(
      read(R"("zero_optimization": {"stage3_model_persistence_threshold": 9223372036854775807})")
          .integer("zero_optimization.stage3_model_persistence_threshold"),
      9223372036854775807);
}

// As DeepSpeed reads them; a file made by a template has texts.
TEST(Configuration, TextsAreReadWhereTheOptionIsABooleanOrANumber) {
  const std::string key = "bf16.enabled";
  for (const char* yes :
       {"true", "\"true\"", "\"True\"", "\"TRUE\"", "1", "1.0", "\"1\"", "\"yes\""}) {
    const std::string text = fmt::format(R"("bf16": {{"enabled": {}}})", yes);
    EXPECT_TRUE(read(text).boolean(key)) << yes;
    EXPECT_EQ("true", read(text).at(key).value.dump()) << yes;
    EXPECT_TRUE(read("", {fmt::format("{}={}", key, yes)}).boolean(key)) << yes;
  }
  for (const char* no : {"false", "\"false\"", "\"False\"", "0", "\"0\"", "\"off\""}) {
    EXPECT_FALSE(read(fmt::format(R"("bf16": {{"enabled": {}}})", no)).boolean(key)) << no;
  }
  EXPECT_TRUE(read("", {"bf16.enabled=True"}).boolean(key));
  for (const char* neither : {"2", "-1", "\"\"", "\"tru\"", "\"2\"", "[true]", "\"null\""}) {
    EXPECT_THAT(refusal(fmt::format(R"("bf16": {{"enabled": {}}})", neither)),
                HasSubstr(fmt::format("bf16.enabled: found {}, expected true", neither)));
  }
  const Configuration values = read(
      R"("zero_optimization": {"stage": "3", "reduce_bucket_size": " +5e8 "},
         "gradient_accumulation_steps": "8", "run": {"threads": "4"},
         "optimizer": {"params": {"lr": "3e-5", "betas": ["0.8", 0.9], "eps": ".5"}},
         "zero_optimization.stage3_model_persistence_threshold": "9223372036854775807")");
  EXPECT_EQ(values.integer("zero_optimization.stage"), 3);
  EXPECT_EQ(values.integer("zero_optimization.reduce_bucket_size"), 500000000);
  EXPECT_EQ(values.integer("gradient_accumulation_steps"), 8);
  EXPECT_EQ(values.integer("run.threads"), 4);
  EXPECT_EQ(values.number("optimizer.params.lr"), 3e-5);
  EXPECT_EQ(values.number("optimizer.params.eps"), 0.5);
  EXPECT_EQ(values.at("optimizer.params.betas").value, nlohmann::json({0.8, 0.9}));
  EXPECT_EQ(values.integer("zero_optimization.stage3_model_persistence_threshold"),
            9223372036854775807);
  EXPECT_TRUE(values.given("zero_optimization.stage"));
  for (const char* bad :
       {"\"4\"", "\"1.5\"", "\"three\"", "\"3 1\"", "\"nan\"", "\"0x1\"", "true"}) {
    EXPECT_THAT(refusal(fmt::format(R"("zero_optimization": {{"stage": {}}})", bad)),
                HasSubstr(fmt::format("zero_optimization.stage: found {}, expected", bad)));
  }
  // A text stays one.
  EXPECT_EQ(read(R"("run": {"log": "1", "init": "true"})").text("run.log"), "1");
  EXPECT_THAT(refusal(R"("run": {"log": 1})"), HasSubstr("run.log: found 1, expected a text"));
  EXPECT_EQ(read(R"("optimizer": {"params": {"betas": "[0.5, 0.25]"}})")
                .at("optimizer.params.betas")
                .value,
            nlohmann::json({0.5, 0.25}));
}

TEST(Configuration, SectionsOfOtherProgramsAreOffUnderAnySpellingOfFalse) {
  for (const char* off : {"false", "\"False\"", "0", "\"0\"", "null"}) {
    EXPECT_EQ("no error", refusal(fmt::format(R"("amp": {{"enabled": {}}})", off))) << off;
    EXPECT_EQ("no error", refusal(fmt::format(R"("amp": {})", off))) << off;
  }
  EXPECT_THAT(refusal(R"("amp": {"enabled": "true"})"), HasSubstr("amp is not offered"));
}

}  // namespace
}  // namespace zero::testing
