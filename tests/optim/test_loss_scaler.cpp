// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "optim/loss_scaler.h"
#include "tests/optim/case.h"

namespace zero {
namespace {

using ::testing::HasSubstr;

// 'x': an overflow; the tables below are those of loss_scaler_trajectories.py.
constexpr std::string_view kSteps = "....x..x.x....xx.......x.x.x.x.x.....xxxx..........x";
constexpr double kError = -1;

LossScaleRule torchs(double initial, std::int64_t window) {
  LossScaleRule rule = LossScaleRule::grad_scaler();
  rule.initial = initial;
  rule.window = window;
  return rule;
}

struct Trajectory {
  const char* name;
  LossScaleRule rule;
  std::vector<double> scales;  // after each step; kError: no smaller scale was left
};

std::vector<Trajectory> trajectories() {
  return {
      {"Window3Hysteresis2",
       {.initial = 64, .window = 3},
       {64, 64, 64, 128, 128, 128, 128, 64, 64, 32, 32, 32, 32, 64, 64, 32, 32, 32,
        32, 64, 64, 64,  128, 128, 128, 64, 64, 32, 32, 16, 16, 8,  8,  8,  8,  16,
        16, 16, 8,  4,   2,   2,   2,   2,  4,  4,  4,  8,  8,  8,  16, 16}},
      {"Consecutive",
       {.initial = 64, .window = 3, .consecutive_hysteresis = true},
       {64,  64,  64,  128, 128, 128, 128, 128, 128, 128,  128,  128,  128,
        256, 256, 128, 128, 128, 128, 256, 256, 256, 512,  512,  512,  512,
        512, 512, 512, 512, 512, 512, 512, 512, 512, 1024, 1024, 1024, 512,
        256, 128, 128, 128, 128, 256, 256, 256, 512, 512,  512,  1024, 1024}},
      {"Window1",
       {.initial = 64, .window = 1, .hysteresis = 1, .minimum = 8},
       {64,   128,  256,  512,  256,  256,  512,  256,   256,   128,   128,    256,    512,
        1024, 512,  256,  256,  512,  1024, 2048, 4096,  8192,  16384, 8192,   8192,   4096,
        4096, 2048, 2048, 1024, 1024, 512,  512,  1024,  2048,  4096,  8192,   4096,   2048,
        1024, 512,  512,  1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 131072}},
      {"ExhaustsMinimum12",
       {.initial = 64, .window = 4, .hysteresis = 3, .minimum = 12},
       {64, 64, 64, 64, 64, 64, 64, 64, 64, 32, 32, 32, 32, 32, 16,
        12, 12, 12, 12, 12, 24, 24, 24, 24, 24, 24, 24, 12, 12, kError}},
      {"GradScaler",
       torchs(64, 3),
       {64, 64, 128, 128,  64,    64,    64,    32,   32,   16,   16,  16,  32,  32, 16, 8,  8, 8,
        16, 16, 16,  32,   32,    16,    16,    8,    8,    4,    4,   2,   2,   1,  1,  1,  2, 2,
        2,  1,  0.5, 0.25, 0.125, 0.125, 0.125, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 1,  1,  0.5}},
  };
}

class LossScalerRules : public ::testing::TestWithParam<Trajectory> {};

TEST_P(LossScalerRules, FollowTheRecordedScales) {
  LossScaler scaler(GetParam().rule);
  EXPECT_EQ(scaler.scale(), 64);
  std::vector<double> scales;
  for (const char step : kSteps) {
    const double before = scaler.scale();
    const LossScaleChange change = scaler.update(step == 'x');
    EXPECT_EQ(change == LossScaleChange::doubled, scaler.scale() > before);
    EXPECT_EQ(change == LossScaleChange::halved, scaler.scale() < before);
    scales.push_back(change == LossScaleChange::exhausted ? kError : scaler.scale());
    if (change == LossScaleChange::exhausted) break;
  }
  EXPECT_EQ(scales, GetParam().scales);
}

TEST_P(LossScalerRules, GoOnFromAnyStep) {
  LossScaler whole(GetParam().rule);
  for (const char step : kSteps) {
    LossScaler resumed(GetParam().rule);
    resumed.restore(whole.state());
    EXPECT_EQ(resumed.update(step == 'x'), whole.update(step == 'x'));
    EXPECT_EQ(resumed.state(), whole.state());
    EXPECT_EQ(resumed.text(), whole.text());
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, LossScalerRules, ::testing::ValuesIn(trajectories()),
                         [](const auto& tested) { return tested.param.name; });

TEST(LossScaler, HasTheDefaultsOfDeepSpeedAndPyTorch) {
  LossScaler deepspeed{LossScaleRule()};
  LossScaler torch(LossScaleRule::grad_scaler());
  for (int step = 1; step <= 2000; ++step) {
    EXPECT_EQ(deepspeed.update(false) == LossScaleChange::doubled, step == 1001) << step;
    EXPECT_EQ(torch.update(false) == LossScaleChange::doubled, step == 2000) << step;
  }
  EXPECT_EQ(deepspeed.scale(), 131072);
  EXPECT_EQ(torch.scale(), 131072);
  EXPECT_EQ(deepspeed.update(true), LossScaleChange::tolerated);
  EXPECT_EQ(torch.update(true), LossScaleChange::halved);
}

TEST(LossScaler, StaysStaticOrInsideFp32) {
  LossScaler fixed(LossScaleRule{.dynamic = false, .initial = 1000});
  for (int step = 0; step < 5; ++step) EXPECT_EQ(fixed.update(true), LossScaleChange::kept);
  EXPECT_EQ(fixed.scale(), 1000);
  LossScaler high(LossScaleRule{.initial = 0x1p127, .window = 1, .delay = 0});
  EXPECT_EQ(high.update(false), LossScaleChange::kept);
  EXPECT_EQ(high.scale(), 0x1p127);
  LossScaler low(LossScaleRule{.initial = 0x1p-125, .hysteresis = 1, .minimum = 0});
  EXPECT_EQ(low.update(true), LossScaleChange::halved);
  EXPECT_EQ(low.update(true), LossScaleChange::exhausted);
  EXPECT_EQ(low.scale(), std::numeric_limits<float>::min());
}

TEST(LossScaler, RefusesAStateThatItsRuleDoesNotReach) {
  const double infinite = std::numeric_limits<double>::infinity();
  LossScaler scaler(LossScaleRule{.initial = 64, .hysteresis = 2, .minimum = 4});
  for (const LossScaler::State& state :
       {LossScaler::State{2, 0, 1}, LossScaler::State{infinite, 0, 1}, LossScaler::State{8, -1, 1},
        LossScaler::State{8, 0, 0}, LossScaler::State{8, 0, 3}}) {
    EXPECT_THAT(error_of([&] { scaler.restore(state); }), HasSubstr("is no state of the rule"));
  }
  EXPECT_EQ(scaler.scale(), 64);
  LossScaler fixed(LossScaleRule{.dynamic = false, .initial = 1000});
  EXPECT_THAT(error_of([&] { fixed.restore({.scale = 8, .hysteresis = 2}); }),
              HasSubstr("is no state of the rule \"static 1000\""));
  fixed.restore(fixed.state());
}

TEST(LossScaler, TakesTheStatesThatItsRuleReachesAndNoOthers) {
  const auto refuses = [](const LossScaleRule& rule, const LossScaler::State& state) {
    LossScaler scaler(rule);
    try {
      scaler.restore(state);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is no state of the rule"));
      return true;
    }
    return false;
  };
  const LossScaleRule rule{.initial = 48, .window = 3, .delay = 1, .hysteresis = 2, .minimum = 5};
  EXPECT_FALSE(refuses(rule, {.scale = 96, .good_steps = 0, .hysteresis = 1}));
  EXPECT_FALSE(refuses(rule, {.scale = 10, .good_steps = 4, .hysteresis = 2}));  // the minimum's
  EXPECT_TRUE(refuses(rule, {.scale = 64, .good_steps = 0, .hysteresis = 1}));
  EXPECT_TRUE(refuses(rule, {.scale = 47.9, .good_steps = 0, .hysteresis = 1}));
  // Four good steps restart the count of overflows.
  EXPECT_FALSE(refuses(rule, {.scale = 48, .good_steps = 3, .hysteresis = 1}));
  EXPECT_TRUE(refuses(rule, {.scale = 48, .good_steps = 4, .hysteresis = 1}));
  LossScaleRule consecutive = rule;
  consecutive.consecutive_hysteresis = true;
  EXPECT_FALSE(refuses(consecutive, {.scale = 48, .good_steps = 0, .hysteresis = 1}));
  EXPECT_TRUE(refuses(consecutive, {.scale = 48, .good_steps = 1, .hysteresis = 1}));
}

TEST(LossScaler, NamesWhatIsOutOfRange) {
  const auto refusal = [](const LossScaleRule& rule) {
    return error_of([&] { const LossScaler scaler(rule); });
  };
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal({.initial = infinite}), HasSubstr("the first is inf, expected 1.2e-38"));
  EXPECT_THAT(refusal({.dynamic = false, .initial = 0}), HasSubstr("the first is 0"));
  EXPECT_THAT(refusal({.minimum = -1}), HasSubstr("the minimum is -1, expected 0 (none)"));
  EXPECT_THAT(refusal({.initial = 2, .minimum = 4}), HasSubstr("2, is below the minimum, 4"));
  EXPECT_THAT(refusal({.window = 0}), HasSubstr("the window is 0 steps"));
  EXPECT_THAT(refusal({.delay = -1}), HasSubstr("the delay is -1 steps"));
  EXPECT_THAT(refusal({.hysteresis = 0}), HasSubstr("hysteresis is 0 overflows"));
}

}  // namespace
}  // namespace zero
