// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <numbers>

#include "optim/learning_rate.h"
#include "tests/optim/case.h"

namespace zero::testing {
namespace {

using Schedule = LearningRateSchedule;
using Kind = LearningRateSchedule::Kind;

Schedule schedule_of(Kind kind) {
  return {.kind = kind,
          .peak = 2e-3,
          .warmup_steps = 10,
          .total_steps = 110,
          .decay_steps = 20,
          .min_ratio = 0.1};
}
constexpr Kind kKinds[] = {Kind::constant, Kind::linear, Kind::cosine, Kind::wsd};

TEST(LearningRate, WarmUpRisesLinearlyFromItsFirstShareToThePeak) {
  for (const Kind kind : kKinds) {
    const Schedule schedule = schedule_of(kind);
    for (int step = 1; step <= 10; ++step) {
      EXPECT_DOUBLE_EQ(schedule.at(step), 2e-3 * step / 10);
    }
  }
}

TEST(LearningRate, WithoutWarmUpStepOneIsNextToThePeak) {
  for (const Kind kind : kKinds) {
    Schedule schedule = schedule_of(kind);
    schedule.warmup_steps = 0;
    EXPECT_NEAR(schedule.at(1), 2e-3, 2e-3 * 0.01);
    EXPECT_LE(schedule.at(1), 2e-3);
  }
}

TEST(LearningRate, ConstantStaysAtThePeak) {
  const Schedule schedule = schedule_of(Kind::constant);
  for (const std::int64_t step : {10, 11, 110, 100'000}) EXPECT_EQ(schedule.at(step), 2e-3);
}

TEST(LearningRate, LinearFallsInEqualSteps) {
  const Schedule schedule = schedule_of(Kind::linear);
  for (int step = 10; step <= 110; ++step) {
    EXPECT_NEAR(schedule.at(step), 2e-3 * (0.1 + 0.9 * (110 - step) / 100), 1e-15);
  }
}

TEST(LearningRate, CosineFollowsHalfAPeriod) {
  const Schedule schedule = schedule_of(Kind::cosine);
  for (int step = 10; step <= 110; ++step) {
    const double half = 0.5 * (1 + std::cos(std::numbers::pi * (step - 10) / 100));
    EXPECT_NEAR(schedule.at(step), 2e-3 * (0.1 + 0.9 * half), 1e-15);
  }
  EXPECT_NEAR(schedule.at(60), 2e-3 * 0.55, 1e-15);  // half way
}

TEST(LearningRate, WsdIsStableAndThenFallsOverTheLastSteps) {
  const Schedule schedule = schedule_of(Kind::wsd);
  for (int step = 10; step <= 90; ++step) EXPECT_EQ(schedule.at(step), 2e-3);
  for (int step = 90; step <= 110; ++step) {
    EXPECT_NEAR(schedule.at(step), 2e-3 * (0.1 + 0.9 * (110 - step) / 20), 1e-15);
  }
}

TEST(LearningRate, AtAndBeyondTheLastStepItIsTheFinalValue) {
  for (const Kind kind : {Kind::linear, Kind::cosine, Kind::wsd}) {
    const Schedule schedule = schedule_of(kind);
    for (const std::int64_t step : {110, 111, 1'000'000}) {
      EXPECT_NEAR(schedule.at(step), 2e-4, 1e-18);
    }
  }
}

TEST(LearningRate, WarmUpMayLastToTheEnd) {
  Schedule schedule = schedule_of(Kind::cosine);
  schedule.warmup_steps = 110;
  schedule.validate();
  EXPECT_EQ(schedule.at(110), 2e-3);
  EXPECT_NEAR(schedule.at(111), 2e-4, 1e-18);
}

TEST(LearningRate, StepsAreCountedFromOne) {
  EXPECT_EQ(error_of([] { schedule_of(Kind::linear).at(0); }),
            "learning-rate schedule: step 0; steps are counted from 1");
}

template <typename Change>
std::string error_after(Kind kind, Change change) {
  Schedule schedule = schedule_of(kind);
  schedule.validate();
  change(schedule);
  return error_of([&] { schedule.validate(); });
}

TEST(LearningRate, ValidateNamesTheFieldThatIsOutOfRange) {
  EXPECT_EQ(error_after(Kind::constant, [](Schedule& s) { s.peak = -1; }),
            "learning-rate schedule: peak is -1; expected a finite value of 0 or more");
  EXPECT_EQ(error_after(Kind::constant, [](Schedule& s) { s.warmup_steps = -2; }),
            "learning-rate schedule: warmup_steps is -2; expected 0 or more");
  EXPECT_EQ(error_after(Kind::linear, [](Schedule& s) { s.min_ratio = 1.5; }),
            "learning-rate schedule: min_ratio is 1.5; expected 0 to 1");
  EXPECT_EQ(
      error_after(Kind::linear, [](Schedule& s) { s.total_steps = 0; }),
      "learning-rate schedule: total_steps is 0; expected 1 or more for a schedule that ends");
  EXPECT_EQ(error_after(Kind::cosine, [](Schedule& s) { s.warmup_steps = 111; }),
            "learning-rate schedule: warmup_steps is 111; expected at most total_steps, 110");
  EXPECT_EQ(error_after(Kind::wsd, [](Schedule& s) { s.decay_steps = 0; }),
            "learning-rate schedule: decay_steps is 0; expected 1 or more for wsd");
  EXPECT_EQ(error_after(Kind::wsd, [](Schedule& s) { s.decay_steps = 101; }),
            "learning-rate schedule: decay_steps is 101; expected at most total_steps - "
            "warmup_steps, 100");
}

TEST(LearningRate, AScheduleThatEndsIsRefusedWithoutItsEnd) {
  const std::string text = "total_steps is 0; expected 1 or more for a schedule that ends";
  for (const Kind kind : {Kind::linear, Kind::cosine, Kind::wsd}) {
    const Schedule schedule{.kind = kind, .peak = 1e-3};
    EXPECT_THAT(error_of([&] { schedule.at(1); }), ::testing::HasSubstr(text));
    EXPECT_THAT(error_of([&] { LearningRates(schedule).at(1); }), ::testing::HasSubstr(text));
  }
  using DeepSpeed = DeepSpeedSchedule;
  for (const auto kind : {DeepSpeed::Kind::warmup_decay, DeepSpeed::Kind::warmup_cosine}) {
    const DeepSpeed schedule{.kind = kind, .high = 1e-3};
    EXPECT_THAT(error_of([&] { schedule.at(1); }), ::testing::HasSubstr(text));
    EXPECT_THAT(error_of([&] { LearningRates(schedule).at(1); }), ::testing::HasSubstr(text));
  }
  EXPECT_GT(LearningRates(DeepSpeed{.high = 1e-3}).at(100), 0);
}

TEST(LearningRate, DeepSpeedsSchedulesNameTheFieldThatIsOutOfRange) {
  const auto refusal = [](const DeepSpeedSchedule& s) { return error_of([&] { s.validate(); }); };
  EXPECT_THAT(refusal({.low = -1}), ::testing::HasSubstr("rates of -1 (low) and 0 (high)"));
  EXPECT_THAT(refusal({.warmup_steps = -2}), ::testing::HasSubstr("warmup_steps is -2"));
  EXPECT_THAT(refusal({.final_ratio = -0.5}), ::testing::HasSubstr("final_ratio is -0.5"));
  EXPECT_THAT(error_of([] { DeepSpeedSchedule{}.at(0); }),
              ::testing::HasSubstr("step 0; steps are counted from 1"));
}

}  // namespace
}  // namespace zero::testing
