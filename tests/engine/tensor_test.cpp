// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <tuple>

#include "collectives/backends.h"
#include "tests/engine/pair_model.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/toy_run.h"
#include "tests/scratch.h"
#include "tests/support/test_device.h"

namespace zero::toy {
namespace {

using testing::StreamOrder;

constexpr std::int64_t kBatches = 4;  // of a step
constexpr int kSteps = 3;

/// Trains the pair on a mesh: four micro-batches a step, whatever the number of data ranks.
Result train_pair(const Job& run) {
  std::mutex mutex;
  std::optional<Result> common;
  local::run(run.mesh.ranks(), [&](Communicator& communicator) {
    std::optional<StreamOrder> order = run.order;
    if (order) order->seed = order->seed * 1000 + static_cast<std::uint64_t>(communicator.rank());
    const std::unique_ptr<Device> device = order ? testing::open(*order) : cpu::open();
    Mesh mesh(communicator, run.mesh);
    Engine engine(mesh, *device, run.engine);
    Pair model(engine);
    const int data = mesh.data().size();
    const int steps = static_cast<int>(kBatches) / data;
    engine.seal({.order = model.order(), .accumulation_steps = steps});
    Result result;
    for (int i = 0; i < kSteps; ++i) {
      std::vector<double*> slots;
      for (int j = 0; j < steps; ++j) {
        slots.push_back(model.loss_slot());
        model.train(i * kBatches + j * data + mesh.data().rank(), 1.0F / kBatches, slots.back());
      }
      std::vector<double> losses;
      if (!order) {
        device->compute().synchronize();
        for (const double* slot : slots) losses.push_back(*slot);
      }
      const StepReport report = engine.step({.learning_rate = 0.01, .losses = losses});
      if (report.nonfinite) fail("step {}: {} is not finite", report.step, *report.nonfinite);
      result.losses.push_back(report.loss);
      result.norms.push_back(report.gradient_norm);
    }
    engine.states().check_replicas();
    result.hash = engine.states().hash();
    const std::lock_guard lock(mutex);
    if (common && !(*common == result)) fail("ranks disagree");
    common = result;
  });
  return *common;
}

/// Ranks on the tensor axis, dtype.
class TensorDegree : public ::testing::TestWithParam<std::tuple<int, DType>> {
 protected:
  static Job base(int stage, int replicate, int shard) {
    const auto& [tensor, dtype] = GetParam();
    return {.mesh = {replicate, shard, tensor}, .engine = options(stage, dtype)};
  }
};

TEST_P(TensorDegree, GivesTheSameBitsAtEveryStageOnEveryMeshOfPowersOfTwo) {
  const Result expected = train_pair(base(0, 1, 4));
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int data : {1, 2, 4}) {
      for (int replicate = 1; replicate <= data; replicate *= 2)
        EXPECT_EQ(train_pair(base(stage, replicate, data / replicate)), expected)
            << fmt::format("stage {}, {} replicas, {} data ranks", stage, replicate, data);
    }
  }
}

TEST_P(TensorDegree, GivesTheSameBitsWhateverOverlapsAndHowItIsCut) {
  const Result expected = train_pair(base(0, 1, 2));
  for (const int stage : {0, 2, 3}) {
    Job run = base(stage, 1, 2);
    run.engine.overlap = false;
    run.engine.limits.reduce_bucket_elements = 100;
    EXPECT_EQ(train_pair(run), expected) << "stage " << stage;
    run = base(stage, 2, 1);
    run.engine.limits.prefetch_elements = 0;
    run.engine.limits.persistence_threshold = 50;
    EXPECT_EQ(train_pair(run), expected) << "stage " << stage;
    run = base(stage, 1, 2);
    run.order = StreamOrder{.policy = StreamOrder::Policy::lazy};
    EXPECT_TRUE(train_pair(run).same_training(expected)) << "lazy, stage " << stage;
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      run.order = StreamOrder{.policy = StreamOrder::Policy::seeded,
                              .seed = seed,
                              .memory = seed == 1 ? MemorySpace::device : MemorySpace::host};
      EXPECT_TRUE(train_pair(run).same_training(expected)) << "seed " << seed;
    }
  }
}

TEST_P(TensorDegree, GivesTheSameBitsWithStatesInAFile) {
  const testing::Scratch scratch;
  for (const MomentFormat moments :
       {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
    for (const int stage : {0, 3}) {
      Job run = base(stage, 1, 2);
      run.engine.optimizer.moments = moments;
      const Result expected = train_pair(run);
      run.engine.tiers = testing::small_windows(scratch.path(), 2);
      EXPECT_EQ(train_pair(run), expected) << name_of(moments) << ", stage " << stage;
    }
  }
}

TEST_P(TensorDegree, CountsEachElementAndLossOnce) {
  const auto& [tensor, dtype] = GetParam();
  Job one = base(0, 1, 1);
  one.mesh.tensor = 1;
  const Result expected = train_pair(one);
  const Result found = train_pair(base(3, 2, 2));
  // Sums over the tensor axis are taken in another order; bf16 and fp16 gradients are rounded
  // besides.
  const double tolerance = dtype == DType::fp32 ? 1e-6 : 1e-2;
  for (int i = 0; i < kSteps; ++i) {
    const auto step = static_cast<std::size_t>(i);
    EXPECT_NEAR(found.losses[step], expected.losses[step], tolerance * expected.losses[step]);
    EXPECT_NEAR(found.norms[step], expected.norms[step], tolerance * expected.norms[step]);
  }
}

std::string degree_name(const ::testing::TestParamInfo<std::tuple<int, DType>>& info) {
  return fmt::format("Tensor{}_{}", std::get<0>(info.param), name_of(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Degrees, TensorDegree,
                         ::testing::Combine(::testing::Values(2, 3, 4),
                                            ::testing::Values(DType::fp32, DType::bf16)),
                         degree_name);
INSTANTIATE_TEST_SUITE_P(Fp16, TensorDegree,
                         ::testing::Combine(::testing::Values(2), ::testing::Values(DType::fp16)),
                         degree_name);

/// One unit of a sliced and a whole parameter, whose gradients a test writes by hand.
TEST(TensorStep, NamesTheParameterAndTheRankOfANonfiniteGradientAndClipsAlike) {
  for (int stage = 0; stage <= 3; ++stage) {
    local::run(8, [&](Communicator& communicator) {
      const std::unique_ptr<Device> device = cpu::open();
      Mesh mesh(communicator, {2, 2, 2});
      const int tensor = mesh.index(Axis::tensor);
      EngineOptions with = options(stage, DType::fp32);
      with.gradient_clipping = 1.0;
      Engine engine(mesh, *device, with);
      const TensorSlice half{{4, 64}, 0, {even_range(4, tensor, 2)}};
      const UnitId unit = engine.add_unit(
          "unit", {{"whole", {64}}, {.name = "half", .shape = {2, 64}, .slice = half}});
      engine.seal({.order = {{unit, Phase::both}}});
      const auto step = [&](float value, double loss) {
        {
          const GradientLease lease = engine.backward(unit);
          std::ranges::fill(lease.gradient("whole").as<float>(), 1.0F);
          std::ranges::fill(lease.gradient("half").as<float>(), value);
        }
        return engine.step({.learning_rate = 0.1, .losses = {&loss, 1}});
      };
      const StepReport good = step(1.0F, 0.25);
      // Four data ranks: every element is 4; 64 of them are whole and 256 halves, each once.
      EXPECT_DOUBLE_EQ(good.gradient_norm, 4.0 * std::sqrt(320.0));
      EXPECT_TRUE(good.clipped);
      EXPECT_DOUBLE_EQ(good.loss, 1.0);
      const std::uint64_t before = engine.states().hash();
      const bool strikes = communicator.rank() == 7;  // tensor index 1
      const StepReport bad = step(strikes ? std::nanf("") : 1.0F, 0.25);
      EXPECT_EQ(bad.nonfinite, "unit.half");
      EXPECT_EQ(bad.nonfinite_rank % 2, 1);
      EXPECT_EQ(engine.states().hash(), before);
      const StepReport worse =
          step(1.0F, communicator.rank() >= 6 ? std::numeric_limits<double>::infinity() : 0.0);
      EXPECT_EQ(worse.nonfinite, "loss");
      EXPECT_EQ(worse.nonfinite_rank, 6);
      EXPECT_FALSE(step(1.0F, 0.25).nonfinite.has_value());
      engine.states().check_replicas();
    });
  }
}

}  // namespace
}  // namespace zero::toy
