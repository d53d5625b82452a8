// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/model/training_harness.h"

// Two steps of training end in the same bits, whatever carries them out.
namespace zero::testing {
namespace {

constexpr std::int64_t kSteps = 2;
constexpr std::int64_t kMicroBatches = 4;  // of one step, over all ranks

struct Outcome {
  std::uint64_t state = 0;
  double norm = 0;
  std::vector<double> losses;  // of micro-batches in their global order
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

using Open = std::function<std::unique_ptr<Device>()>;

Outcome train(int ranks, const EngineOptions& options, const Open& open_device) {
  const Gpt2Config config = tiny_gpt2();
  Outcome outcome;
  outcome.losses.resize(kSteps * kMicroBatches);
  local::run(ranks, [&](Communicator& communicator) {
    const auto device = open_device();
    const std::int64_t accumulation = kMicroBatches / ranks;
    Training training(communicator, *device, options, config, {2, 7},
                      static_cast<int>(accumulation));
    StepReport report;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t j = 0; j < accumulation; ++j) {
        const std::int64_t index = step * kMicroBatches + j * ranks + communicator.rank();
        outcome.losses[static_cast<std::size_t>(index)] =
            training.train(Batch::random(14, config.vocabulary, static_cast<std::uint32_t>(index)),
                           1.0F / (14 * kMicroBatches));
      }
      report = training.engine.step({.learning_rate = 1e-2});
    }
    const std::uint64_t hash = training.engine.state_hash();
    if (communicator.rank() == 0) {
      outcome.state = hash;
      outcome.norm = report.gradient_norm;
    }
  });
  return outcome;
}

EngineOptions options(int stage, DType compute) {
  return {.stage = stage, .compute = compute, .gradient_clipping = 1.0};
}

Open on_threads(int threads) {
  return [threads] { return cpu::open({.threads = threads}); };
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
    EXPECT_EQ(train(ranks, sharded, in_order({.policy = StreamOrder::Policy::seeded, .seed = 3})),
              expected_);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Gpt2Bits, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace zero::testing
