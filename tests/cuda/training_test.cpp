// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/naive_products.h"
#include "tests/errors.h"
#include "tests/model/outcome.h"

// Whole steps of training on the emulated GPU: ranks are threads that share it, and the engine, its
// schedules and the models are what the CPU runs.
namespace zero::testing {
namespace {

using cuda::emulated::Settings;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Parameters of any size are sharded and gathered.
EngineOptions options(int stage, DType compute) {
  EngineOptions options{.stage = stage, .compute = compute, .gradient_clipping = 1.0};
  options.limits.persistence_threshold = 0;
  return options;
}

Outcome train(const ModelConfig& config, int ranks, const EngineOptions& engine,
              const Settings& settings) {
  cuda::emulated::reset(settings);
  Outcome outcome = outcome_of(config, 4, ranks, engine, [] { return cuda::open(); });
  cuda::emulated::reset();
  return outcome;
}

class EmulatedTraining : public ::testing::TestWithParam<DType> {};

TEST_P(EmulatedTraining, GivesTheSameBitsAtEveryStageWorldAndOrder) {
  const DType dtype = GetParam();
  const Outcome expected = train(tiny_gpt2(), 1, options(0, dtype), {});
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 4}) {
      const Settings settings{
          .order = stage % 2 == 0 ? Settings::Order::seeded : Settings::Order::lazy,
          .seed = static_cast<std::uint64_t>(stage + ranks)};
      EXPECT_EQ(train(tiny_gpt2(), ranks, options(stage, dtype), settings), expected)
          << "stage " << stage << ", " << ranks << " ranks";
    }
  }
  EngineOptions waiting = options(3, dtype);
  waiting.overlap = false;
  waiting.limits.reduce_bucket_elements = 100;
  EXPECT_EQ(train(tiny_gpt2(), 2, waiting, {}), expected) << "overlap off, small buckets";
}

// Parameters and gradients lie at multiples of 16 bytes at every stage, so that the same products
// compute them.
TEST_P(EmulatedTraining, GivesTheLibraryTheSameProductsAtEveryStage) {
  const auto fused = [&](int stage, int ranks) {
    cuda::emulated::reset({});
    outcome_of(tiny_gpt2(), 4, ranks, options(stage, GetParam()), [] { return cuda::open(); });
    const auto log = cuda::emulated::log();
    cuda::emulated::reset();
    return std::ranges::count(log, "fused product", &cuda::emulated::Item::name);
  };
  const auto alone = fused(0, 1);
  EXPECT_GT(alone, 0);
  EXPECT_EQ(fused(3, 1), alone);
  EXPECT_EQ(fused(3, 2), alone) << "ranks share the micro-batches";
}

TEST_P(EmulatedTraining, OfLlamaGivesTheSameBitsAtStage3) {
  const Outcome expected = train(tiny_llama(), 1, options(0, GetParam()), {});
  EXPECT_EQ(train(tiny_llama(), 2, options(3, GetParam()), {}), expected);
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedTraining, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST(EmulatedTraining, FollowsTheCpu) {
  for (const ModelConfig& config : {ModelConfig(tiny_gpt2()), ModelConfig(tiny_llama())}) {
    const Outcome cpu = outcome_of(config, 4, 1, options(0, DType::fp32), on_threads(1));
    const Outcome gpu = train(config, 2, options(3, DType::fp32), {});
    ASSERT_EQ(cpu.losses.size(), gpu.losses.size());
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(gpu.losses[i] / cpu.losses[i], 1, 1e-6) << family_of(config) << ", loss " << i;
    }
    EXPECT_NEAR(gpu.norm / cpu.norm, 1, 1e-5) << family_of(config);
  }
}

TEST(EmulatedTraining, WantsOneVersionOfTheLibrariesOnAllRanks) {
  cuda::emulated::reset({});
  local::run(2, [](Communicator& ranks) {
    if (ranks.rank() == 1) cuda::naive::version() = "2.0.0";
    const auto device = cuda::open();
    EXPECT_THAT(message_of([&] {
                  Training(ranks, *device, options(3, DType::bf16), tiny_llama(), {2, 7}, 2);
                }),
                AllOf(HasSubstr("seal: rank 1 has \"layers' kernels"),
                      HasSubstr("bf16 products by cuBLASLt 2.0.0, attention by cuDNN"),
                      HasSubstr("rank 0 has \"layers' kernels"),
                      HasSubstr("bf16 products by cuBLASLt 1.0.0, of naive loops"),
                      HasSubstr("all ranks must be started alike")));
  });
  cuda::emulated::reset();
}

TEST(EmulatedTraining, TakesTheMemoryThatWasPlanned) {
  for (const int stage : {0, 1, 2, 3}) {
    cuda::emulated::reset({});
    local::run(2, [&](Communicator& ranks) {
      const EngineOptions engine = options(stage, DType::bf16);
      const auto none = planning::open(1, Memory::apart, "cuda");
      const auto nobody = planning::communicator(ranks.rank(), ranks.size(), ranks.backend());
      const Training plan(*nobody, *none, engine, tiny_llama(), {2, 7}, 2);

      const auto device = cuda::open();
      Training training(ranks, *device, engine, tiny_llama(), {2, 7}, 2);
      for (int step = 0; step < 2; ++step) {
        for (int j = 0; j < 2; ++j) training.train(Batch::random(14, 23, 1), 1.0F / 56);
        training.engine.step({.learning_rate = 1e-2});
      }
      EXPECT_EQ(device->ledger().snapshot().peak, none->ledger().snapshot().peak)
          << "stage " << stage << ", rank " << ranks.rank();
    });
    cuda::emulated::reset();
  }
}

/// What a run of some steps asked the driver for.
struct Calls {
  std::int64_t allocations = 0;
  std::int64_t synchronizations = 0;
};

Calls calls_of(int ranks, int stage, int steps) {
  cuda::emulated::reset();
  local::run(ranks, [&](Communicator& world) {
    const auto device = cuda::open();
    Training training(world, *device, options(stage, DType::bf16), tiny_gpt2(), {2, 7}, 2);
    for (int step = 0; step < steps; ++step) {
      for (int j = 0; j < 2; ++j) training.train(Batch::random(14, 23, 1), 1.0F / 56);
      training.engine.step({.learning_rate = 1e-2});
    }
  });
  const Calls calls{cuda::emulated::allocations(), cuda::emulated::synchronizations()};
  cuda::emulated::reset();
  return calls;
}

TEST(EmulatedTraining, StepsTakeNoMemoryAndStopTheHostForTheLossesAndTheNormAlone) {
  constexpr int kRanks = 2;
  for (const int stage : {0, 1, 2, 3}) {
    const Calls two = calls_of(kRanks, stage, 2);
    const Calls four = calls_of(kRanks, stage, 4);
    EXPECT_EQ(four.allocations, two.allocations) << "stage " << stage;
    EXPECT_EQ(four.synchronizations - two.synchronizations, 2 * kRanks * (2 + 1))
        << "stage " << stage;
  }
}

}  // namespace
}  // namespace zero::testing
