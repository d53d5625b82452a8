// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/engine/toy_run.h"
#include "tests/support/test_device.h"

namespace zero::toy {
namespace {

using testing::StreamOrder;

/// Dtype, accumulation steps.
using Case = std::tuple<DType, int>;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const auto& [dtype, steps] = info.param;
  return fmt::format("{}_Accumulate{}", name_of(dtype), steps);
}

/// The theorem over meshes: {replicate R, shard S} gives the bits of {shard R * S}.
class Replicas : public ::testing::TestWithParam<Case> {
 protected:
  static Job base(int world) {
    const auto& [dtype, steps] = GetParam();
    return {.world = world, .engine = options(2, dtype), .accumulation_steps = steps};
  }
};

TEST_P(Replicas, GiveTheBitsOfOneShardAxisAtEveryStage) {
  for (const int world : {2, 4, 8}) {
    Job run = base(world);
    const Result expected = train(run);
    for (int replicate = 2; replicate <= world; replicate *= 2) {
      run.mesh.replicate = replicate;
      for (run.engine.stage = 0; run.engine.stage <= 3; ++run.engine.stage) {
        EXPECT_EQ(train(run), expected)
            << replicate << " of " << world << ", stage " << run.engine.stage;
      }
    }
  }
}

TEST_P(Replicas, AndOverlapBucketsTypesAndTheOrderOfStreamsChangeNoBit) {
  Job run = base(4);
  run.engine.gradient = DType::fp32;
  const Result expected = train(run);
  run.mesh.replicate = 2;
  for (const int stage : {0, 3}) {
    run.engine.stage = stage;
    for (const std::int64_t bucket : {1, 1024}) {
      run.engine.limits.reduce_bucket_elements = bucket;
      EXPECT_EQ(train(run), expected) << "bucket " << bucket << ", stage " << stage;
    }
    run.engine.overlap = false;
    EXPECT_EQ(train(run), expected) << "no overlap, stage " << stage;
    run.engine.overlap = true;
    Job late = run;
    late.order = StreamOrder{.policy = StreamOrder::Policy::lazy};
    EXPECT_TRUE(train(late).same_training(expected)) << "lazy, stage " << stage;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      late.order = StreamOrder{.policy = StreamOrder::Policy::seeded,
                               .seed = seed,
                               .memory = seed == 1 ? MemorySpace::device : MemorySpace::host};
      EXPECT_TRUE(train(late).same_training(expected)) << "seed " << seed << ", stage " << stage;
    }
  }
}

TEST_P(Replicas, ReduceAtTheBoundaryToTheSameBits) {
  for (const DType gradient : {DType::fp32, std::get<0>(GetParam())}) {
    Job run = base(4);
    run.engine.reduction = ReductionPolicy::boundary;
    run.engine.gradient = gradient;
    run.engine.stage = 1;
    const Result expected = train(run);
    for (const int replicate : {2, 4}) {
      run.mesh.replicate = replicate;
      for (run.engine.stage = 0; run.engine.stage <= 1; ++run.engine.stage)
        EXPECT_EQ(train(run), expected) << replicate << ", stage " << run.engine.stage;
    }
  }
}

TEST_P(Replicas, OfAnyNumberGiveThoseBitsWhereShardsAreAPowerOfTwo) {
  Job run = base(6);
  const Result expected = train(run);
  run.mesh.replicate = 3;
  EXPECT_EQ(train(run), expected);
}

TEST_P(Replicas, OfAnyShardsAgreeOverStages) {
  Job run = base(6);
  run.mesh.replicate = 2;  // the tree of three shards, then of two replicas
  const Result expected = train(run);
  for (run.engine.stage = 0; run.engine.stage <= 3; ++run.engine.stage)
    EXPECT_EQ(train(run), expected) << "stage " << run.engine.stage;
}

INSTANTIATE_TEST_SUITE_P(Meshes, Replicas,
                         ::testing::Combine(::testing::Values(DType::fp32, DType::bf16),
                                            ::testing::Values(1, 3)),
                         case_name);

}  // namespace
}  // namespace zero::toy
