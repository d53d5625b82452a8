// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Shards of parameters in a file give the bits of parameters in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/small_windows.h"
#include "tests/engine/toy_run.h"
#include "tests/scratch.h"
#include "tests/support/test_device.h"

namespace zero::toy {
namespace {

using testing::StreamOrder;

/// A layer has five windows on one rank; more units than slots.
constexpr Shape kDeep{.layers = 3, .width = 136, .vocabulary = 13, .rows = 2};
/// Biases and the scale stay whole below it, weights do not.
constexpr std::int64_t kThreshold = 200;

/// World, dtype, moments.
using ShardCase = std::tuple<int, DType, MomentFormat>;

class ShardTheorem : public ::testing::TestWithParam<ShardCase> {
 protected:
  static Job in_memory(int stage, int accumulation_steps = 1) {
    const auto& [world, dtype, moments] = GetParam();
    Job run{.world = world,
            .engine = options(stage, dtype),
            .accumulation_steps = accumulation_steps,
            .shape = kDeep};
    run.engine.optimizer.moments = moments;
    return run;
  }
  /// On a disk that transfers as late as it may.
  static Job in_file(Tier optimizer, int buffers, int accumulation_steps = 1) {
    Job run = in_memory(3, accumulation_steps);
    run.engine.tiers =
        testing::with_shards(testing::small_windows(testing::kLateFolder, 2), optimizer, buffers);
    run.states_disk = testing::late_disk;
    return run;
  }
};

TEST_P(ShardTheorem, ParametersOnNvmeChangeNoBit) {
  const Result expected = train(in_memory(0));
  for (const Tier optimizer : {Tier::device, Tier::file}) {
    for (const int buffers : {1, 2, 5}) {
      for (const std::int64_t threshold : {std::int64_t{0}, kThreshold}) {
        Job run = in_file(optimizer, buffers);
        run.engine.limits.persistence_threshold = threshold;
        EXPECT_EQ(train(run), expected)
            << "optimizer " << (optimizer == Tier::file ? "in the file" : "in memory") << ", "
            << buffers << " buffers, threshold " << threshold;
      }
    }
  }
}

TEST_P(ShardTheorem, HowShardsAreFetchedChangesNoBit) {
  const Result expected = train(in_memory(0, 3));
  const auto expect_same = [&](std::string_view what,
                               const std::function<void(EngineOptions&)>& change) {
    for (const bool overlap : {true, false}) {
      Job run = in_file(Tier::file, 2, 3);
      run.engine.limits.persistence_threshold = kThreshold;
      run.engine.overlap = overlap;
      change(run.engine);
      EXPECT_EQ(train(run), expected) << what << (overlap ? "" : ", without overlap");
    }
  };
  expect_same("usual", [](EngineOptions&) {});
  expect_same("usual limits", [](EngineOptions& of) { of.limits = {}; });
  expect_same("no prefetch", [](EngineOptions& of) { of.limits.prefetch_elements = 0; });
  expect_same("all ahead", [](EngineOptions& of) {
    of.limits.prefetch_elements = 1 << 20;
    of.tiers.fetch_buffers = 5;
  });
  expect_same("kept for backward", [](EngineOptions& of) { of.limits.reuse_distance = 1 << 20; });
  expect_same("one transfer at a time",
              [](EngineOptions& of) { of.tiers.file.overlap_events = false; });
  expect_same("some units", [](EngineOptions& of) { of.tiers.parameters_in_memory = 20'000; });
  expect_same("states of some units", [](EngineOptions& of) { of.tiers.optimizer_ratio = 0.4; });
  expect_same("one window", [](EngineOptions& of) { of.tiers.windows.buffers = 1; });
}

TEST_P(ShardTheorem, LazyAndPermutedStreamsChangeNoBitAndReadersSeeTheSameStates) {
  Job run = in_memory(3);
  run.read_rounds = 3;
  const Result expected = train(run);
  for (const Tier optimizer : {Tier::device, Tier::file}) {
    run = in_file(optimizer, 2);
    run.engine.limits.persistence_threshold = kThreshold;
    run.read_rounds = 3;
    EXPECT_EQ(train(run), expected);
    run.order = StreamOrder{.policy = StreamOrder::Policy::lazy};
    EXPECT_TRUE(train(run).same_training(expected)) << "lazy";
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      run.order = StreamOrder{.policy = StreamOrder::Policy::seeded, .seed = seed};
      EXPECT_TRUE(train(run).same_training(expected)) << "seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, ShardTheorem,
    ::testing::Combine(::testing::Values(1, 2, 3, 4),
                       ::testing::Values(DType::fp32, DType::bf16, DType::fp16),
                       ::testing::Values(MomentFormat::fp32, MomentFormat::bf16,
                                         MomentFormat::eight_bit)),
    [](const ::testing::TestParamInfo<ShardCase>& chosen) {
      return fmt::format("World{}_{}_Moments{}", std::get<0>(chosen.param),
                         name_of(std::get<1>(chosen.param)), name_of(std::get<2>(chosen.param)));
    });

Job two_ranks_of_shards(Tier optimizer) {
  Job run{.world = 2, .engine = options(3, DType::bf16), .shape = kDeep};
  run.engine.limits.persistence_threshold = kThreshold;
  run.engine.tiers = testing::with_shards(testing::small_windows(testing::kLateFolder), optimizer);
  run.states_disk = testing::late_disk;
  return run;
}

// What an evaluation has read ahead is of parameters that the next steps change.
TEST(ShardRuns, EvaluationsBetweenStepsSeeTheParametersAndChangeNoBit) {
  const auto run_with = [](const Job& run) {
    std::vector<double> losses;
    std::uint64_t hash = 0;
    with_engine(run, [&](Engine& engine, Model& model, Communicator& communicator) {
      for (int i = 0; i < run.steps; ++i) {
        engine.begin_evaluation();
        for (int batch = 0; batch < 2; ++batch) {
          double* const loss = model.loss_slot();
          model.evaluate(1000 + batch, loss);
          engine.device().compute().synchronize();
          if (communicator.rank() == 0) losses.push_back(*loss);
        }
        engine.end_evaluation();
        step(engine, model, communicator, run, i);
      }
      const std::uint64_t found = engine.states().hash();
      if (communicator.rank() == 0) hash = found;
    });
    return std::pair(losses, hash);
  };
  for (const Tier optimizer : {Tier::device, Tier::file}) {
    Job run = two_ranks_of_shards(optimizer);
    const auto in_file = run_with(run);
    run.engine.tiers = {};
    EXPECT_EQ(in_file, run_with(run));
  }
}

TEST(ShardRuns, OnADiskAndAMeshHaveTheSameBitsAndLeaveNothingBehind) {
  const testing::Scratch scratch;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Job run{.world = 4, .engine = options(3, dtype), .shape = kDeep};
    run.mesh.replicate = 2;
    const Result expected = train(run);
    run.engine.tiers = testing::with_shards(testing::small_windows(scratch.path()));
    EXPECT_EQ(train(run), expected) << name_of(dtype);
  }
  EXPECT_THAT(scratch.names(), ::testing::IsEmpty());
}

TEST(ShardRuns, OfOptimizersWithoutMomentsHaveTheSameBits) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Job run{.world = 2, .engine = options(3, dtype), .shape = kDeep};
    run.engine.optimizer = {.kind = OptimizerConfig::Kind::sgd, .momentum = 0};
    const Result expected = train(run);
    run.engine.tiers = two_ranks_of_shards(Tier::device).engine.tiers;
    run.states_disk = testing::late_disk;
    EXPECT_EQ(train(run), expected) << name_of(dtype);
  }
}

TEST(ShardRuns, TellTheSecondsThatComputeWaitedForTheDiskApart) {
  for (const bool overlap : {true, false}) {
    Job run = two_ranks_of_shards(Tier::device);
    run.engine.overlap = overlap;
    run.engine.limits.prefetch_elements = 0;
    run.engine.tiers.fetch_buffers = 1;
    run.states_disk = testing::slow_disk;
    with_engine(run, [&](Engine& engine, Model& model, Communicator& communicator) {
      for (int i = 0; i < 3; ++i) {
        engine.begin_evaluation();
        model.evaluate(1000, model.loss_slot());
        engine.end_evaluation();
        const StepReport report = step(engine, model, communicator, run, i);
        EXPECT_GT(report.tier_seconds, 0);
        EXPECT_GE(report.exposed_seconds, -1e-9);
        EXPECT_THAT(engine.exposed_by_use(), ::testing::Each(::testing::Ge(-1e-9)));
      }
    });
  }
}

}  // namespace
}  // namespace zero::toy
