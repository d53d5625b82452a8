// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/stepper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "bench/measured_keys.h"
#include "collectives/backends.h"
#include "launch/config/option.h"
#include "launch/train/memory_fit.h"
#include "tests/errors.h"

namespace zero::bench {
namespace {

TEST(Steppers, ATokensArithmeticIsSixPerParameterAndCausalAttention) {
  const TrainConfig config = make_config({});
  EXPECT_EQ(config.tokens_per_step(), 4 * 512);
  EXPECT_DOUBLE_EQ(flop_per_token(config), 6.0 * (124439808 + 12 * 768 * 512));
}

TEST(Steppers, OverridesAreTheTrainers) {
  const TrainConfig config =
      make_config({.batch = 8,
                   .dtype = DType::fp32,
                   .stage = 3,
                   .world = 4,
                   .overrides = {"reduction=boundary", "zero_optimization.stage=1"}});
  EXPECT_EQ(config.engine.reduction, ReductionPolicy::boundary);
  EXPECT_EQ(config.engine.stage, 1);
  EXPECT_EQ(config.engine.compute, DType::fp32);
  EXPECT_EQ(config.batch, (Batch{8, 2, 1}));
}

TEST(MeasuredKeys, EveryKeyThatTakesEffectIsSorted) {
  for (const Option& option : option_table()) {
    const bool sorted = find_measured_key(option.path) != nullptr;
    EXPECT_EQ(sorted, option.handling == Handling::honoured)
        << option.path << ": say in bench/measured_keys.cpp whether it counts";
  }
}

TEST(MeasuredKeys, OverridesThatWouldMeasureNothingElseAreRefused) {
  EXPECT_EQ("no error", error_of([] {
              check_overrides({"model.layers=1", "mesh.chunks=2", "bf16.bf16_optimizer_states=true",
                               "model={\"hf\": \"a\"}", "fp16.enabled=true",
                               "zero_optimization.max_live_parameters=5", "run.memory_limit=1GiB",
                               "nonsense=1"});
            }));
  EXPECT_THAT(error_of([] { check_overrides({"run.device=cuda"}); }),
              ::testing::HasSubstr("--set run.device=cuda: changes nothing that is measured here: "
                                   "this section measures the CPU; `zero_bench gpu`"));
  EXPECT_THAT(error_of([] { check_overrides({"wall_clock_breakdown=true"}); }),
              ::testing::HasSubstr("measured here: run.log and the console have the figures"));
  for (const char* text : {"data.train=a.bin",
                           "run.checkpoint.folder=a",
                           "bfloat16.enabled=true",
                           "zero_optimization.stage=3",
                           "train_batch_size=2",
                           "scheduler.type=cosine",
                           "scheduler.params.warmup_num_steps=3",
                           "optimizer.params.lr=1",
                           "run.trace_from=1",
                           "run.trace_steps=1",
                           "run.trace_events=1",
                           "run.resume=never",
                           "run.resume_changes=a",
                           "run.stop_after=1",
                           "run.nonfinite=skip",
                           "run.nonfinite_limit=3",
                           "run.validation_sequences=1",
                           "run.collective_timeout=1",
                           "run.collective_warning=1",
                           "run.seed=5",
                           "run.sums=fast",
                           "zero_optimization.contiguous_gradients=true"}) {
    EXPECT_THAT(error_of([&] { check_overrides({text}); }),
                ::testing::HasSubstr(std::string("--set ") + text + ": changes nothing"));
  }
  for (const char* text : {"zero_optimization={\"stage\": 3}", "run=null", "bf16={}",
                           "optimizer.params={\"lr\": 1}"}) {
    EXPECT_THAT(error_of([&] { check_overrides({text}); }),
                ::testing::HasSubstr("give its keys one by one"));
  }
}

TEST(Steppers, StepsAreTimedOnAllRanks) {
  const TrainConfig config = make_config(
      {.batch = 2,
       .sequence = 8,
       .dtype = DType::fp32,
       .stage = 2,
       .world = 2,
       .overrides = {"model.layers=1", "model.width=16", "model.heads=2", "model.vocabulary=64"}});
  local::run(2, [&](Communicator& communicator) {
    const auto device = cpu::open();
    Stepper stepper(config, communicator, *device);
    EXPECT_GT(stepper.seconds(2), 0);
    EXPECT_EQ(stepper.engine().states().steps_done(), 2);
  });
}

const std::vector<std::string> kTiny{"model.layers=2", "model.width=16", "model.heads=2",
                                     "model.vocabulary=64"};

TrainConfig tiny_with(const std::vector<std::string>& more) {
  StepSetup setup{.batch = 2, .sequence = 8, .dtype = DType::fp32, .overrides = kTiny};
  setup.overrides.insert(setup.overrides.end(), more.begin(), more.end());
  return make_config(setup);
}

TEST(Steppers, FitTheirMemoryAsTheTrainerDoes) {
  const std::string automatic = "activation_checkpointing.recompute=auto";
  const std::int64_t bytes = planned_rank_bytes(tiny_with({}), BackendKind::local);
  const std::string limit = "run.memory_limit=" + std::to_string(bytes - 1);
  EXPECT_TRUE(tiny_with({automatic, limit}).recompute.plan.any());
  EXPECT_THROW(tiny_with({limit}), Error);
}

TEST(Steppers, FollowTheLossScaleOfFp16) {
  // 2^24 is beyond what fp16 gradients of 16 tokens allow.
  const TrainConfig config =
      tiny_with({"fp16.enabled=true", "fp16.initial_scale_power=24", "fp16.hysteresis=1"});
  local::run(1, [&](Communicator& communicator) {
    const auto device = cpu::open();
    Stepper stepper(config, communicator, *device);
    EXPECT_TRUE(stepper.step().nonfinite.has_value());
    int steps = 1;
    while (stepper.engine().states().steps_done() == 0 && steps < 24) {
      const StepReport report = stepper.step();
      ++steps;
      if (report.nonfinite) continue;
      EXPECT_LT(report.gradient_norm, 100) << "of the unscaled gradient";
    }
    EXPECT_EQ(stepper.engine().states().steps_done(), 1) << steps;
  });
}

}  // namespace
}  // namespace zero::bench
