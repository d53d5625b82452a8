// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/model/outcome.h"
#include "tests/support/test_device.h"

// Two steps of training end in the same bits, whatever carries them out.
namespace zero::testing {
namespace {

Outcome train(int ranks, const EngineOptions& options, const Open& open_device) {
  return outcome_of(tiny_gpt2(), 4, ranks, options, open_device);
}

EngineOptions options(int stage, DType compute) {
  return {.stage = stage, .compute = compute, .gradient_clipping = 1.0};
}

Open in_order(const StreamOrder& order) {
  return [order] { return open(order); };
}

class Gpt2Bits : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype_ = GetParam();
  Outcome expected_ = train(1, options(0, dtype_), on_threads(1));
};

TEST_P(Gpt2Bits, DoNotDependOnThreads) {
  EXPECT_EQ(train(1, options(0, dtype_), on_threads(2)), expected_);
  EXPECT_EQ(train(1, options(0, dtype_), on_threads(3)), expected_);
}

TEST_P(Gpt2Bits, DoNotDependOnStageAndWorld) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 4}) {
      EXPECT_EQ(train(ranks, options(stage, dtype_), on_threads(1)), expected_)
          << "stage " << stage << ", " << ranks << " ranks";
    }
  }
}

TEST_P(Gpt2Bits, DoNotDependOnWhenStreamsRun) {
  for (const int ranks : {1, 2}) {
    const EngineOptions sharded = options(3, dtype_);
    EXPECT_EQ(train(ranks, sharded, in_order({.policy = StreamOrder::Policy::lazy})), expected_);
    EXPECT_EQ(train(ranks, sharded, in_order({.memory = MemorySpace::device})), expected_);
    EXPECT_EQ(train(ranks, sharded, in_order({.policy = StreamOrder::Policy::seeded, .seed = 3})),
              expected_);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Gpt2Bits, ::testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace zero::testing
