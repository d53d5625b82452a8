// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Runs in fp16 that overflow: what they skip, and how they go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/launch/config_with.h"
#include "tests/launch/cut_run.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// Begins at 2^32, far above what 16 x 16 tokens allow, and doubles after three good steps.
const Overrides kOverflowing{"fp16.enabled=true",
                             "fp16.initial_scale_power=32",
                             "fp16.loss_scale_window=2",
                             "fp16.hysteresis=1",
                             "scheduler.type=linear",
                             "scheduler.params.warmup_num_steps=4",
                             "scheduler.params.total_num_steps=40",
                             "run.steps=18"};

/// All that overflows decide, of every step and of the end.
Json trajectory(const CutRun& run) {
  Json all = Json::array();
  for (const Json& line : run.tiny().log()) {
    for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "loss_scale", "skipped",
                            "state_hash", "validation_loss", "plan_exact"}) {
      if (line.contains(key)) all.push_back({key, line[key]});
    }
  }
  return all;
}

Json uncut(int world, const Overrides& more) {
  const CutRun run;
  EXPECT_EQ(run.start({.world = world, .overrides = plus(kOverflowing, more)}).status, 0);
  return trajectory(run);
}

TEST(LossScaling, Fp16ComputesWithTheLossScaleOfItsSection) {
  EXPECT_FALSE(config_with({"fp16.hysteresis=7"}).loss_scale_rule.has_value());
  const TrainConfig plain = config_with({"fp16.enabled=true", "data_types.grad_accum_dtype=fp16"});
  EXPECT_EQ(plain.engine.compute, DType::fp16);
  EXPECT_EQ(plain.engine.gradient, DType::fp16);
  EXPECT_EQ(plain.loss_scale_rule, LossScaleRule()) << "DeepSpeed's defaults";
  const TrainConfig given = config_with(
      {"fp16.enabled=true", "fp16.initial_scale_power=7", "fp16.loss_scale_window=5",
       "fp16.hysteresis=3", "fp16.consecutive_hysteresis=true", "fp16.min_loss_scale=0.25"});
  EXPECT_EQ(given.loss_scale_rule, (LossScaleRule{.initial = 128,
                                                  .window = 5,
                                                  .hysteresis = 3,
                                                  .consecutive_hysteresis = true,
                                                  .minimum = 0.25}));
  EXPECT_EQ(config_with({"fp16.enabled=true", "fp16.loss_scale=1000"}).loss_scale_rule,
            (LossScaleRule{.dynamic = false, .initial = 1000}));
  EXPECT_THAT(refusal_with({"fp16.enabled=true", "bf16.enabled=true"}),
              HasSubstr("fp16.enabled and bf16.enabled are both true"));
  EXPECT_THAT(
      refusal_with({"fp16.enabled=true", "fp16.initial_scale_power=2", "fp16.min_loss_scale=8"}),
      HasSubstr("fp16.initial_scale_power is 2, so the loss scale begins at 4, below "
                "fp16.min_loss_scale 8"));
  EXPECT_THAT(refusal_with({"fp16.enabled=true", "fp16.loss_scale=1e-40"}),
              HasSubstr("fp16.loss_scale: loss scale: the first is 1e-40, expected 1.2e-38"));
  EXPECT_THAT(
      refusal_with({"data_types.grad_accum_dtype=fp16"}),
      HasSubstr(
          "data_types.grad_accum_dtype is \"fp16\", but the run computes in fp32; expected null"));
  EXPECT_THAT(refusal_with({"fp16.loss_scale_window=0"}), HasSubstr("fp16.loss_scale_window"));
  EXPECT_THAT(refusal_with({"fp16.min_loss_scale=0"}), HasSubstr("fp16.min_loss_scale"));
}

TEST(LossScaling, SkipsOverflowsThenTrains) {
  const CutRun run;
  const Ended ended = run.start({.world = 2, .overrides = kOverflowing});
  const std::vector<Json> log = run.tiny().log();
  double scale = 0x1p32;
  int good = 0;
  int in_row = 0;
  int skipped = 0;
  for (const Json& line : log) {
    if (!line.contains("step")) continue;
    EXPECT_EQ(line["loss_scale"], scale) << line;
    // A skipped step does not advance the schedule: 0.0025 more a good step, then down.
    const double expected = good < 4 ? 0.0025 * (good + 1) : 0.01 * (1 - (good - 3) / 36.0);
    EXPECT_NEAR(line["learning_rate"].get<double>(), expected, 1e-12) << line;
    if (line.contains("skipped")) {
      EXPECT_TRUE(line["grad_norm"].is_null());
      scale /= 2;
      ++skipped;
      in_row = 0;
    } else {
      EXPECT_GT(line["grad_norm"], 0.0);
      ++good;
      ++in_row;
      if (in_row > 1 && in_row % 2 == 1) scale *= 2;
    }
  }
  EXPECT_GE(skipped, 6);
  EXPECT_GE(good, 5);
  // The head's backward comes first, and the last norm is the first whose gradient is complete.
  EXPECT_EQ(log[0]["skipped"], "ln_f.bias");
  EXPECT_THAT(
      ended.out,
      HasSubstr("step 1: the gradient of ln_f.bias overflows fp16 at loss scale 4294967296; "
                "the update was skipped, and the scale becomes 2147483648\n"));
  EXPECT_THAT(ended.out, Not(HasSubstr("in a row")));
  EXPECT_EQ(log.back()["plan_exact"], true);
}

TEST(LossScaling, TrajectoriesAreTheSameAtEveryStageAndWorld) {
  const Json expected = uncut(1, {"zero_optimization.stage=0"});
  for (const int stage : {1, 2, 3}) {
    EXPECT_EQ(uncut(2, {fmt::format("zero_optimization.stage={}", stage)}), expected) << stage;
  }
  EXPECT_EQ(uncut(4, {"zero_optimization.stage=3", "zero_optimization.overlap_comm=false",
                      "zero_optimization.reduce_bucket_size=1000",
                      "zero_optimization.stage3_param_persistence_threshold=0"}),
            expected);
  EXPECT_EQ(uncut(8, {"zero_optimization.stage=2", "mesh.replicate=2"}), expected);
  const Json tensor = uncut(2, {"zero_optimization.stage=0", "mesh.tensor=2"});
  EXPECT_EQ(uncut(4, {"zero_optimization.stage=3", "mesh.tensor=2"}), tensor);
}

TEST(LossScaling, ARunCutAmongOverflowsGoesOnAsIfUncut) {
  const Json expected = uncut(1, {});
  const CutRun run;
  for (const int steps : {3, 13}) {
    run.start({.world = steps == 3 ? 2 : 4,
               .overrides = plus(kOverflowing, {fmt::format("run.steps={}", steps)})});
  }
  const Overrides one = plus(kOverflowing, {"run.stop_after=1"});
  run.start({.world = 2, .overrides = one, .started = kLongAgo});
  run.start({.world = 2, .overrides = kOverflowing});
  EXPECT_EQ(trajectory(run), expected);
}

TEST(LossScaling, TheScaleIsPartOfTheHash) {
  const Overrides one{"fp16.enabled=true", "run.steps=1"};
  const auto hash = [&](const Overrides& more) {
    const CutRun run;
    run.start({.overrides = plus(one, more)});
    return run.tiny().log().back()["state_hash"];
  };
  // Both skip their only step: the models are as they began.
  EXPECT_NE(hash({"fp16.initial_scale_power=32"}), hash({"fp16.initial_scale_power=31"}));
}

TEST(LossScaling, AnOverflowAtTheSmallestScaleEndsTheRunOnAllRanks) {
  const CutRun run;
  EXPECT_THAT(run.refusal({.world = 2,
                           .overrides = plus(kOverflowing, {"fp16.min_loss_scale=2147483648"})}),
              AllOf(HasSubstr("step 2: the gradient of ln_f.bias overflows fp16 at loss scale "
                              "2147483648, the smallest that fp16.min_loss_scale allows"),
                    HasSubstr("Lower fp16.min_loss_scale; if that is no help, lower optim")));
  EXPECT_TRUE(run.saved().empty());
}

TEST(LossScaling, AStaticScaleLeavesOverflowsToRunNonfinite) {
  const CutRun run;
  const Overrides fixed{"fp16.enabled=true", "fp16.loss_scale=4294967296"};
  EXPECT_THAT(run.refusal({.overrides = fixed}),
              AllOf(HasSubstr("step 1: the gradient of ln_f.bias is NaN or infinite"),
                    HasSubstr("Lower fp16.loss_scale, or set it to 0 (dynamic), lower optim")));
  EXPECT_THAT(
      run.refusal({.overrides = plus(fixed, {"run.nonfinite=skip", "run.nonfinite_limit=3"})}),
      HasSubstr("step 3: the gradient of ln_f.bias is NaN or infinite"));
  const CutRun small;
  EXPECT_EQ(small.start({.overrides = {"fp16.enabled=true", "fp16.loss_scale=1000"}}).status, 0);
  EXPECT_EQ(small.tiny().log()[0]["loss_scale"], 1000.0);
}

TEST(LossScaling, AScaleAtWhichAllGradientsVanishIsToldOnce) {
  const std::string warning = "every gradient is zero at loss scale ";
  const CutRun run;
  const Overrides tiny{"fp16.enabled=true", "fp16.loss_scale=1e-30"};
  const std::string out = run.start({.world = 2, .overrides = tiny}).out;
  const std::size_t at = out.find("warning: step 1: " + warning + "1e-30: ");
  ASSERT_NE(at, out.npos) << out;
  EXPECT_THAT(out, HasSubstr("Raise fp16.loss_scale, or set it to 0 (dynamic)\n"));
  EXPECT_EQ(out.find(warning, at + 30), out.npos) << "of six steps, the first";
  EXPECT_EQ(run.tiny().log()[0]["grad_norm"], 0.0);
  for (const char* enough : {"fp16.loss_scale=1000", "fp16.loss_scale=0"}) {
    const CutRun other;
    EXPECT_THAT(other.start({.overrides = {"fp16.enabled=true", enough}}).out,
                Not(HasSubstr(warning)));
  }
}

TEST(LossScaling, ARuleThatTheUserChangesBeginsAtItsOwnScale) {
  const CutRun run;
  run.start({.overrides = plus(kOverflowing, {"run.steps=2"})});
  const Overrides changed = plus(kOverflowing, {"run.steps=3", "fp16.initial_scale_power=5",
                                                "run.resume_changes=fp16.initial_scale_power"});
  EXPECT_EQ(run.start({.overrides = changed}).status, 0);
  for (const Json& line : run.tiny().log()) {
    if (line.value("step", 0) == 3) {
      EXPECT_EQ(line["loss_scale"], 32.0);
    }
    if (line.contains("final")) {
      EXPECT_EQ(line["steps_skipped"], 2);
    }
  }
}

TEST(LossScaling, ABrokenScaleIsRefused) {
  const CutRun run;
  run.start({.overrides = plus(kOverflowing, {"run.steps=2"})});
  const auto refusal_of = [&](const char* change) {
    run.rewrite(2, [&](nlohmann::ordered_json& values) {
      values.merge_patch(nlohmann::ordered_json::parse(change));
    });
    return run.refusal({.world = 2, .overrides = kOverflowing});
  };
  EXPECT_THAT(
      refusal_of(R"({"loss_scaler": {"hysteresis": 2}})"),
      AllOf(HasSubstr("with 2 overflows up to the next smaller one, is no state of the rule"),
            HasSubstr("hysteresis=1")));
  EXPECT_THAT(refusal_of(R"({"loss_scaler": {"scale": 0}})"), HasSubstr("a scale of 0 after"));
  EXPECT_THAT(refusal_of(R"({"loss_scaler": {"good_steps": -1}})"),
              HasSubstr("loss_scaler.good_steps: found -1, expected a whole number"));
  EXPECT_THAT(refusal_of(R"({"loss_scaler": null})"), HasSubstr("loss_scaler.scale is missing"));
}

TEST(LossScaling, Fp32TakesOverTheStatesOfAnFp16Run) {
  const CutRun run;
  run.start({.overrides = plus(kOverflowing, {"run.steps=2"})});
  const Ended other = run.start(
      {.overrides = {"run.steps=4", "scheduler.type=linear", "scheduler.params.warmup_num_steps=4",
                     "scheduler.params.total_num_steps=40",
                     "run.resume_changes=[\"fp16.enabled\",\"fp16.loss_scale\","
                     "\"fp16.initial_scale_power\",\"fp16.loss_scale_window\",\"fp16.hysteresis\","
                     "\"fp16.consecutive_hysteresis\",\"fp16.min_loss_scale\"]"}});
  EXPECT_THAT(other.out,
              HasSubstr("fp16.enabled is true in the checkpoint and not set in this run"));
  int steps = 0;
  for (const Json& line : run.tiny().log()) {
    if (!line.contains("step")) continue;
    EXPECT_EQ(line.contains("loss_scale"), ++steps <= 2) << line;
  }
  EXPECT_EQ(steps, 4);
}

}  // namespace
}  // namespace zero::testing
