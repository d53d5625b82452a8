// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Optimizer states in a file give the bits of states in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/engine_parts.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/toy_run.h"
#include "tests/scratch.h"
#include "tests/support/test_device.h"

namespace zero::toy {
namespace {

using testing::StreamOrder;

/// A layer has five windows on one rank.
constexpr Shape kWide{.layers = 2, .width = 136, .vocabulary = 13, .rows = 2};

/// World, dtype, moments.
using TierCase = std::tuple<int, DType, MomentFormat>;

class TierTheorem : public ::testing::TestWithParam<TierCase> {
 protected:
  static Job in_memory(int stage) {
    const auto& [world, dtype, moments] = GetParam();
    Job run{
        .world = world, .engine = options(stage, dtype), .accumulation_steps = 2, .shape = kWide};
    run.engine.optimizer.moments = moments;
    return run;
  }
  /// On a disk that transfers as late as it may.
  static Job in_file(int stage, int buffers) {
    Job run = in_memory(stage);
    run.engine.tiers = testing::small_windows(testing::kLateFolder, buffers);
    run.states_disk = testing::late_disk;
    return run;
  }
};

TEST_P(TierTheorem, StatesOnNvmeChangeNoBit) {
  const Result expected = train(in_memory(0));
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int buffers : {2, 3, 5})
      EXPECT_EQ(train(in_file(stage, buffers)), expected)
          << "stage " << stage << ", " << buffers << " buffers";
  }
}

TEST_P(TierTheorem, HowStatesPassThroughMemoryChangesNoBit) {
  const Result expected = train(in_memory(0));
  const auto expect_same = [&](std::string_view what,
                               const std::function<void(TierOptions&)>& change) {
    Job run = in_file(2, 3);
    change(run.engine.tiers);
    EXPECT_EQ(train(run), expected) << what;
  };
  expect_same("one window", [](TierOptions& of) { of.windows.buffers = 1; });
  expect_same("no reads ahead", [](TierOptions& of) { of.windows.pipeline_read = false; });
  expect_same("no writes behind", [](TierOptions& of) { of.windows.pipeline_write = false; });
  expect_same("neither", [](TierOptions& of) {
    of.windows.pipeline_read = of.windows.pipeline_write = false;
  });
  expect_same("odd windows", [](TierOptions& of) { of.windows.buffer_elements = 2 * 4096 + 77; });
  expect_same("whole units",
              [](TierOptions& of) { of.windows.buffer_elements = std::int64_t{1} << 40; });
  expect_same("some units", [](TierOptions& of) { of.optimizer_ratio = 0.6; });
  expect_same("no unit", [](TierOptions& of) { of.optimizer_ratio = 0; });
  expect_same("one transfer at a time", [](TierOptions& of) { of.file.overlap_events = false; });
  expect_same("together", [](TierOptions& of) { of.file.queue.one_by_one = false; });
}

TEST_P(TierTheorem, LazyAndPermutedStreamsChangeNoBitAndReadersSeeTheSameStates) {
  for (const int stage : {0, 3}) {
    Job run = in_memory(stage);
    run.read_rounds = 3;
    const Result expected = train(run);
    run = in_file(stage, 2);
    run.read_rounds = 3;
    EXPECT_EQ(train(run), expected) << "stage " << stage;
    run.order = StreamOrder{.policy = StreamOrder::Policy::lazy};
    EXPECT_TRUE(train(run).same_training(expected)) << "lazy, stage " << stage;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      run.order = StreamOrder{.policy = StreamOrder::Policy::seeded, .seed = seed};
      EXPECT_TRUE(train(run).same_training(expected)) << "seed " << seed << ", stage " << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, TierTheorem,
    ::testing::Combine(::testing::Values(1, 2, 3, 8), ::testing::Values(DType::fp32, DType::bf16),
                       ::testing::Values(MomentFormat::fp32, MomentFormat::bf16,
                                         MomentFormat::eight_bit)),
    [](const ::testing::TestParamInfo<TierCase>& info) {
      return fmt::format("World{}_{}_Moments{}", std::get<0>(info.param),
                         name_of(std::get<1>(info.param)), name_of(std::get<2>(info.param)));
    });

TEST(TierRuns, OnADiskHaveTheSameBitsAndLeaveNothingBehind) {
  const testing::Scratch scratch;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const int stage : {1, 3}) {
      Job run{.world = 4, .engine = options(stage, dtype), .shape = kWide};
      run.mesh.replicate = 2;
      const Result expected = train(run);
      run.engine.tiers = testing::small_windows(scratch.path());
      EXPECT_EQ(train(run), expected) << name_of(dtype) << ", stage " << stage;
    }
  }
  EXPECT_THAT(scratch.names(), ::testing::IsEmpty());
}

TEST(TierRuns, OfOptimizersWithFewerMomentsHaveTheSameBits) {
  for (const double momentum : {0.0, 0.9}) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      Job run{.world = 2, .engine = options(3, dtype), .shape = kWide};
      run.engine.optimizer = {.kind = OptimizerConfig::Kind::sgd, .momentum = momentum};
      const Result expected = train(run);
      run.engine.tiers = testing::small_windows(testing::kLateFolder);
      run.states_disk = testing::late_disk;
      EXPECT_EQ(train(run), expected) << name_of(dtype) << ", momentum " << momentum;
    }
  }
}

// A skipped step begins to read windows, and ends without an update.
TEST(TierRuns, ThatSkipStepsHaveTheSameBits) {
  for (const int stage : {0, 2, 3}) {
    for (const MomentFormat moments :
         {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
      Job run{.world = 2, .engine = options(stage, DType::fp16), .steps = 6, .shape = kWide};
      run.engine.optimizer.moments = moments;
      run.loss_scale = [](int step) { return std::ldexp(1.0, step % 2 == 0 ? 40 : 4); };
      const Result expected = train(run);
      EXPECT_THAT(expected.skipped, ::testing::ElementsAre(1, 3, 5));
      run.states_disk = testing::late_disk;
      for (const int buffers : {1, 2, 5}) {
        for (const bool pipelined : {true, false}) {
          run.engine.tiers = testing::small_windows(testing::kLateFolder, buffers);
          run.engine.tiers.windows.pipeline_read = pipelined;
          run.engine.tiers.windows.pipeline_write = pipelined;
          EXPECT_EQ(train(run), expected) << "stage " << stage << ", moments " << name_of(moments)
                                          << ", " << buffers << " buffers, pipelined " << pipelined;
        }
      }
    }
  }
}

TEST(TierRuns, CountWaitsOutsideOfStepsForNoStep) {
  Job run{.world = 1, .engine = options(3, DType::bf16), .shape = kWide};
  run.engine.tiers = testing::small_windows(testing::kLateFolder, 1);
  run.states_disk = testing::slow_disk;
  with_engine(run, [&](Engine& engine, Model& model, Communicator& communicator) {
    const Waits& waits = EngineParts::of(engine).waits();
    const auto seconds_outside = [&](int step_index) {
      const double before = waits.of_tiers().seconds();
      const StepReport report = step(engine, model, communicator, run, step_index);
      EXPECT_NEAR(report.tier_seconds, waits.of_tiers().seconds() - before, 1e-9);
      EXPECT_GT(report.tier_seconds, 0);
      EXPECT_GE(report.exposed_seconds, -1e-9);
      return before;
    };
    EXPECT_GT(seconds_outside(0), 0) << "of the first values";
    const double first = waits.of_tiers().seconds();
    engine.states().publish_parameters();
    EXPECT_GT(seconds_outside(1), first) << "of publish_parameters";
    const double second = waits.of_tiers().seconds();
    engine.states().initialise();
    EXPECT_GT(seconds_outside(0), second) << "of initialise";
  });
}

TEST(TierRuns, TellTheSecondsThatComputeWaitedForTheDiskApart) {
  Job run{.world = 1, .engine = options(3, DType::bf16), .shape = kWide};
  run.engine.tiers = testing::small_windows(testing::kLateFolder, 1);
  run.states_disk = testing::slow_disk;
  with_engine(run, [&](Engine& engine, Model& model, Communicator& communicator) {
    for (int i = 0; i < 3; ++i) {
      engine.states().publish_parameters();  // waits for the file too
      engine.begin_evaluation();
      model.evaluate(1000, model.loss_slot());
      engine.end_evaluation();
      const StepReport report = step(engine, model, communicator, run, i);
      EXPECT_GT(report.tier_seconds, 0);
      EXPECT_GE(report.exposed_seconds, -1e-9);
    }
  });
  run.engine.tiers = {};
  with_engine(run, [&](Engine& engine, Model& model, Communicator& communicator) {
    EXPECT_EQ(step(engine, model, communicator, run, 0).tier_seconds, 0);
  });
}

}  // namespace
}  // namespace zero::toy
