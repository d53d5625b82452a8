// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/engine/toy_run.h"
#include "tests/support/test_device.h"

namespace zero::toy {
namespace {

using testing::StreamOrder;

/// World, dtype, accumulation steps, moments.
using Case = std::tuple<int, DType, int, MomentFormat>;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [world, dtype, steps, moments] = info.param;
  return fmt::format(
      "World{}_{}_Accumulate{}{}", world, name_of(dtype), steps,
      moments == MomentFormat::fp32 ? std::string() : fmt::format("_Moments{}", name_of(moments)));
}

class Theorem : public ::testing::TestWithParam<Case> {
 protected:
  static Job base(int stage) {
    const auto& [world, dtype, steps, moments] = GetParam();
    Job job{.world = world, .engine = options(stage, dtype), .accumulation_steps = steps};
    job.engine.optimizer.moments = moments;
    return job;
  }
};

TEST_P(Theorem, AllStagesGiveTheSameBits) {
  const Result expected = train(base(0));
  for (int stage = 1; stage <= 3; ++stage)
    EXPECT_EQ(train(base(stage)), expected) << "stage " << stage;
}

TEST_P(Theorem, OverlapAndLimitsChangeNoBit) {
  const Result expected = train(base(0));
  for (const int stage : {1, 3}) {
    Job run = base(stage);
    run.engine.overlap = false;
    EXPECT_EQ(train(run), expected) << "no overlap, stage " << stage;
  }
  for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1024}, std::int64_t{1} << 40}) {
    for (const int stage : {0, 2, 3}) {
      Job run = base(stage);
      run.engine.limits.reduce_bucket_elements = bucket;
      EXPECT_EQ(train(run), expected) << "bucket " << bucket << ", stage " << stage;
    }
  }
  for (const std::int64_t prefetch : {std::int64_t{0}, std::int64_t{700}, std::int64_t{1} << 40}) {
    for (const std::int64_t threshold : {0, 30, 100'000}) {
      Job run = base(3);
      run.engine.limits.prefetch_elements = prefetch;
      run.engine.limits.persistence_threshold = threshold;
      EXPECT_EQ(train(run), expected) << "prefetch " << prefetch << ", threshold " << threshold;
    }
  }
  Job run = base(3);
  run.engine.limits = {};
  EXPECT_EQ(train(run), expected) << "no limit given";
  run = base(3);
  run.engine.limits.reuse_distance = std::int64_t{1} << 40;
  EXPECT_EQ(train(run), expected) << "everything kept";
  run.engine.limits.live_elements = 1;
  EXPECT_EQ(train(run), expected) << "one unit live";
}

TEST_P(Theorem, LazyAndPermutedStreamsChangeNoBit) {
  const Result expected = train(base(0));
  for (int stage = 0; stage <= 3; ++stage) {
    Job run = base(stage);
    for (const MemorySpace memory : {MemorySpace::host, MemorySpace::device}) {
      run.order = StreamOrder{.policy = StreamOrder::Policy::lazy, .seed = 0, .memory = memory};
      EXPECT_TRUE(train(run).same_training(expected))
          << "lazy, stage " << stage << (memory == MemorySpace::device ? ", memory apart" : "");
    }
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      run.order = StreamOrder{.policy = StreamOrder::Policy::seeded, .seed = seed};
      EXPECT_TRUE(train(run).same_training(expected)) << "seed " << seed << ", stage " << stage;
    }
  }
}

TEST_P(Theorem, GradientsInFp32AgreeAcrossStages) {
  Job run = base(0);
  run.engine.gradient = DType::fp32;
  const Result expected = train(run);
  for (int stage = 1; stage <= 3; ++stage) {
    run.engine.stage = stage;
    EXPECT_EQ(train(run), expected) << "stage " << stage;
  }
}

TEST_P(Theorem, BoundaryReductionAgreesOverStages0And1) {
  for (const DType gradient : {DType::fp32, std::get<1>(GetParam())}) {
    Job run = base(0);
    run.engine.reduction = ReductionPolicy::boundary;
    run.engine.gradient = gradient;
    const Result expected = train(run);
    run.engine.stage = 1;
    EXPECT_EQ(train(run), expected);
    run.order = StreamOrder{.policy = StreamOrder::Policy::seeded, .seed = 4};
    EXPECT_TRUE(train(run).same_training(expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Theorem,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 8),
                                            ::testing::Values(DType::fp32, DType::bf16),
                                            ::testing::Values(1, 2, 4),
                                            ::testing::Values(MomentFormat::fp32)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(SmallMoments, Theorem,
                         ::testing::Combine(::testing::Values(2, 3, 8),
                                            ::testing::Values(DType::bf16), ::testing::Values(1, 4),
                                            ::testing::Values(MomentFormat::bf16,
                                                              MomentFormat::eight_bit)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Fp16, Theorem,
                         ::testing::Combine(::testing::Values(2, 8), ::testing::Values(DType::fp16),
                                            ::testing::Values(1, 4),
                                            ::testing::Values(MomentFormat::fp32)),
                         case_name);

TEST(WorldTheorem, OneGlobalBatchGivesTheSameBitsOn1248Ranks) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const std::optional<DType> gradient :
         {std::optional<DType>(), std::optional(DType::fp32)}) {
      Job run{.world = 1, .engine = options(2, dtype), .accumulation_steps = 8};
      run.engine.gradient = gradient;
      const Result expected = train(run);
      for (const int world : {2, 4, 8}) {
        for (const int stage : {0, 3}) {
          run.world = world;
          run.accumulation_steps = 8 / world;
          run.engine.stage = stage;
          EXPECT_EQ(train(run), expected) << "world " << world << ", stage " << stage;
        }
      }
    }
  }
}

TEST(WorldTheorem, SmallMomentsHaveTheSameBitsOn1248RanksAtEveryStage) {
  std::vector<std::uint64_t> hashes;
  for (const MomentFormat moments :
       {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
    Job run{.world = 1, .engine = options(2, DType::bf16), .accumulation_steps = 8};
    run.engine.optimizer.moments = moments;
    const Result expected = train(run);
    hashes.push_back(expected.hash);
    for (const int world : {2, 4, 8}) {
      for (int stage = 0; stage <= 3; ++stage) {
        run.world = world;
        run.accumulation_steps = 8 / world;
        run.engine.stage = stage;
        run.engine.limits.persistence_threshold = stage == 3 ? 30 : 0;
        EXPECT_EQ(train(run), expected)
            << name_of(moments) << ", world " << world << ", stage " << stage;
      }
    }
  }
  EXPECT_NE(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], hashes[2]);
}

TEST(StateHash, ChangesWithTheSeedAndWithEachStep) {
  Job run{.world = 2, .engine = options(3, DType::fp32)};
  const std::uint64_t three = train(run).hash;
  run.steps = 4;
  EXPECT_NE(train(run).hash, three);
  run.steps = 3;
  run.engine.seed = 8;
  EXPECT_NE(train(run).hash, three);
}

TEST(Accumulation, MicroBatchesEqualOneLargeBatchWithinRounding) {
  Job run{.world = 1, .engine = options(0, DType::fp32), .accumulation_steps = 4};
  const Result small = train(run);
  run.world = 4;
  run.accumulation_steps = 1;
  run.engine.stage = 3;
  const Result wide = train(run);
  for (std::size_t i = 0; i < small.losses.size(); ++i)
    EXPECT_DOUBLE_EQ(small.losses[i], wide.losses[i]);
}

}  // namespace
}  // namespace zero::toy
