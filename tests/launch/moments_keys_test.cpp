// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/config_with.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST(MomentsKeys, GiveOneFormatWhicheverNamesIt) {
  const std::string ours = "optimizer.params.moments";
  const std::string deepspeed = "bf16.bf16_optimizer_states=true";
  const auto format = [](const std::vector<std::string>& overrides) {
    return config_with(overrides).engine.optimizer.moments;
  };
  EXPECT_EQ(format({}), MomentFormat::fp32);
  EXPECT_EQ(format({ours + "=fp32"}), MomentFormat::fp32);
  EXPECT_EQ(format({ours + "=bf16"}), MomentFormat::bf16);
  EXPECT_EQ(format({ours + "=8bit", "optimizer.type=Adam"}), MomentFormat::eight_bit);
  EXPECT_EQ(format({ours + "=8bit", "optimizer.type=SGD", "optimizer.params.momentum=0.9"}),
            MomentFormat::eight_bit);
  EXPECT_EQ(format({"bf16.bf16_optimizer_states=false", "bf16.enabled=true"}), MomentFormat::fp32);
  const TrainConfig config = config_with({deepspeed, "bf16.enabled=true"});
  EXPECT_EQ(config.engine.optimizer.moments, MomentFormat::bf16);
  EXPECT_EQ(config.values.text(ours), "bf16");
  EXPECT_EQ(format({deepspeed, "bf16.enabled=true", ours + "=bf16"}), MomentFormat::bf16);
  EXPECT_THAT(refusal_with({deepspeed, "bf16.enabled=true", ours + "=8bit"}),
              HasSubstr("bf16.bf16_optimizer_states is true, but optimizer.params.moments is "
                        "\"8bit\"; leave one of the two out"));
  EXPECT_THAT(refusal_with({deepspeed}),
              HasSubstr("bf16.bf16_optimizer_states is true, but bf16.enabled is false"));
  EXPECT_THAT(refusal_with({ours + "=8bit", "optimizer.type=SGD"}),
              HasSubstr("optimizer.params.moments is \"8bit\", but SGD without momentum keeps no "
                        "moments"));
  EXPECT_THAT(refusal_with({ours + "=int8"}),
              HasSubstr("expected one of \"fp32\", \"bf16\", \"8bit\""));
}

}  // namespace
}  // namespace zero::testing
