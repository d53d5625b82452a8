// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/cuda/emulator/emulator.h"
#include "tests/cuda/naive_products.h"
#include "tests/cuda/submitted.h"
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

Outcome train(const DecoderShape& config, int ranks, const EngineOptions& engine,
              const Settings& settings) {
  cuda::emulated::reset(settings);
  Outcome outcome = outcome_of(config, 4, ranks, engine, [] { return cuda::open(); });
  cuda::emulated::reset();
  return outcome;
}

/// Three steps of four micro-batches over all ranks, with an evaluation behind each.
struct Course {
  std::vector<double> evaluations;
  std::uint64_t state = 0;
  CaptureCounts graphs;
  bool same_bits(const Course& other) const {
    return evaluations == other.evaluations && state == other.state;
  }
};

Course course_of(const DecoderShape& config, int ranks, const EngineOptions& engine,
                 const Settings& settings = {}, const RecomputePlan& plan = {}) {
  cuda::emulated::reset(settings);
  Course course;
  local::run(ranks, [&](Communicator& communicator) {
    const auto device = cuda::open();
    const int accumulation = 4 / ranks;
    Training training(communicator, *device, engine, config, {2, 7}, accumulation, {}, plan);
    Course own;
    for (int step = 0; step < 3; ++step) {
      for (int j = 0; j < accumulation; ++j) {
        const int number = 4 * step + j * ranks + communicator.rank();
        training.train(Batch::random(14, 23, static_cast<std::uint32_t>(number)), 1.0F / 56);
      }
      training.engine.step({.learning_rate = 1e-2});
      own.evaluations.push_back(training.evaluate(Batch::random(14, 23, 99)));
    }
    own.state = training.engine.states().hash();
    own.graphs = training.engine.captured_graphs();
    if (communicator.rank() == 0) course = own;
  });
  cuda::emulated::reset();
  return course;
}

EngineOptions without_graphs(EngineOptions options) {
  options.graphs = false;
  return options;
}

class EmulatedTraining : public ::testing::TestWithParam<DType> {};

TEST_P(EmulatedTraining, GivesTheSameBitsAtEveryStageWorldAndOrder) {
  const DType dtype = GetParam();
  const Outcome expected = train(tiny_gpt2(), 1, without_graphs(options(0, dtype)), {});
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

TEST_P(EmulatedTraining, WithSmallMomentsGivesTheSameBitsAtEveryStageAndWorld) {
  const Outcome in_fp32 = train(tiny_gpt2(), 1, options(0, GetParam()), {});
  for (const MomentFormat moments : {MomentFormat::bf16, MomentFormat::eight_bit}) {
    const auto with_moments = [&](int stage) {
      EngineOptions small = options(stage, GetParam());
      small.optimizer.moments = moments;
      return small;
    };
    const Outcome expected = train(tiny_gpt2(), 1, with_moments(0), {});
    EXPECT_NE(expected.state, in_fp32.state);
    for (const auto& [stage, ranks] : {std::pair(1, 4), {2, 2}, {3, 1}, {3, 4}}) {
      const Settings settings{.order = Settings::Order::seeded, .seed = 5};
      EXPECT_EQ(train(tiny_gpt2(), ranks, with_moments(stage), settings), expected)
          << name_of(moments) << ", stage " << stage << ", " << ranks << " ranks";
    }
  }
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

TEST_P(EmulatedTraining, GivesTheSameBitsWithGraphsAndWithout) {
  const DType dtype = GetParam();
  const DecoderShape config =  // a tied head and a separate one
      dtype == DType::fp32 ? tiny_gpt2() : tiny_llama();
  const Course expected = course_of(config, 1, without_graphs(options(0, dtype)));
  EXPECT_EQ(expected.graphs.graphs, 0);
  const Course kept =
      course_of(config, 4, options(3, dtype), {.order = Settings::Order::seeded, .seed = 3});
  EXPECT_TRUE(kept.same_bits(expected));
  EXPECT_EQ(kept.graphs.graphs, 2 * 3);  // of two blocks: forward, backward, evaluation
  EXPECT_GT(kept.graphs.nodes, 2 * (6 + 12 + 6));
  EXPECT_EQ(kept.graphs.refusal, "");
  EngineOptions checked = options(1, dtype);
  checked.checked = true;
  const Course compared = course_of(config, 2, checked);
  EXPECT_TRUE(compared.same_bits(expected)) << "checked";
  EXPECT_EQ(compared.graphs.graphs, 2 * 3);
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedTraining,
                         ::testing::Values(DType::fp32, DType::bf16, DType::fp16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

// The product before GELU applies GELU to what it has not rounded yet: backward reads forward's
// output, or what the same product makes of the same operands. From the rounded operand it is
// another.
TEST(EmulatedTraining, GivesTheSameBitsWhateverIsComputedAgainWithOutputsKept) {
  using enum BlockTensor;
  const auto state_of = [](RecomputePlan plan, BlockOutputs outputs) {
    plan.outputs = outputs;
    return course_of(tiny_gpt2(), 1, options(0, DType::bf16), {}, plan).state;
  };
  const std::uint64_t kept = state_of({}, BlockOutputs::of_device);
  const std::uint64_t again = state_of({}, BlockOutputs::again);
  EXPECT_NE(kept, again);
  EXPECT_EQ(state_of(RecomputePlan::full(2), BlockOutputs::again), again);
  for (const RecomputePlan& plan :
       {RecomputePlan::full(2), RecomputePlan::grouped(2, 1), RecomputePlan::selective(2, {hidden}),
        RecomputePlan::selective(2, {qkv, attended})}) {
    EXPECT_EQ(state_of(plan, BlockOutputs::kept), kept) << plan.text();
  }
}

TEST(EmulatedTraining, GraphsDoNotOutliveTheMemoryTheyWorkOn) {
  const auto state_of = [](const EngineOptions& engine, bool moves) {
    cuda::emulated::reset({});
    std::uint64_t state = 0;
    local::run(1, [&](Communicator& alone) {
      const auto device = cuda::open();
      Training training(alone, *device, engine, tiny_gpt2(), {2, 7}, 2);
      for (int step = 0; step < 3; ++step) {
        for (int j = 0; j < 2; ++j) training.train(Batch::random(14, 23, 1), 1.0F / 56);
        training.engine.step({.learning_rate = 1e-2});
        if (!moves || step != 1) continue;
        training.model.allocate();  // perhaps where it was: the device says
        EXPECT_EQ(training.engine.captured_graphs().graphs, 0);
      }
      state = training.engine.states().hash();
    });
    cuda::emulated::reset();
    return state;
  };
  const EngineOptions engine = options(3, DType::fp32);
  const std::uint64_t expected = state_of(without_graphs(engine), false);
  EXPECT_EQ(state_of(engine, false), expected);
  EXPECT_EQ(state_of(engine, true), expected);
}

TEST(EmulatedTraining, FollowsTheCpu) {
  for (const DecoderShape& config : {tiny_gpt2(), tiny_llama(), tiny_scaled()}) {
    const Outcome cpu = outcome_of(config, 4, 1, options(0, DType::fp32), on_threads(1));
    const Outcome gpu = train(config, 2, options(3, DType::fp32), {});
    ASSERT_EQ(cpu.losses.size(), gpu.losses.size());
    for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
      EXPECT_NEAR(gpu.losses[i] / cpu.losses[i], 1, 1e-6) << config.family->name << ", loss " << i;
    }
    EXPECT_NEAR(gpu.norm / cpu.norm, 1, 1e-5) << config.family->name;
  }
}

TEST(EmulatedTraining, WantsOneVersionOfTheLibrariesOnAllRanks) {
  cuda::emulated::reset({});
  local::run(2, [](Communicator& ranks) {
    if (ranks.rank() == 1) cuda::naive::version() = "2.0.0";
    const auto device = cuda::open();
    EXPECT_THAT(error_of([&] {
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
      const auto none = planning::open(1, MemorySpace::device, DeviceKind::cuda);
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

// Twice for each loss, which this harness keeps in pageable memory: for its copy, and to read it.
TEST(EmulatedTraining, StepsTakeNoMemoryAndStopTheHostForTheLossesAndTheNormAlone) {
  constexpr int kRanks = 2;
  for (const int stage : {0, 1, 2, 3}) {
    const Calls two = calls_of(kRanks, stage, 2);
    const Calls four = calls_of(kRanks, stage, 4);
    EXPECT_EQ(four.allocations, two.allocations) << "stage " << stage;
    EXPECT_EQ(four.synchronizations - two.synchronizations, 2 * kRanks * (2 * 2 + 1))
        << "stage " << stage;
  }
}

/// Calls of the runtime, and of libraries, by a micro-batch of a model of so many blocks, when
/// everything is kept that will be.
Submitted submitted_by(const EngineOptions& engine, std::int64_t blocks) {
  cuda::emulated::reset();
  Submitted one;
  local::run(1, [&](Communicator& alone) {
    const auto device = cuda::open();
    // As in models of use, nothing lies between parameters.
    const DecoderShape model = tiny_gpt2({{"layers", blocks}, {"width", 64}, {"heads", 4}});
    Training training(alone, *device, engine, model, {1, 3}, 3);
    one = submitted_by_last(3, [&] { training.train(Batch::random(3, 23, 1), 1.0F / 9); });
  });
  cuda::emulated::reset();
  return one;
}

// docs/gpu.md has these figures, of as many blocks as GPT-2 124M has.
TEST(EmulatedTraining, SubmitsAPassOfABlockAtOnce) {
  EngineOptions engine = options(0, DType::bf16);
  engine.checked = false;  // it would make each pass again, to compare it
  for (const std::int64_t blocks : {1, 12}) {
    const Submitted one_by_one = submitted_by(without_graphs(engine), blocks);
    const Submitted kept = submitted_by(engine, blocks);
    EXPECT_EQ(one_by_one.graphs, 0);
    EXPECT_EQ(kept.graphs, 2 * blocks);
    EXPECT_GT(one_by_one.launches - kept.launches, blocks * (6 + 12));
    const std::string name = std::to_string(blocks) + "_blocks";
    RecordProperty(
        name, fmt::format("{} calls with {} launches, {} with {} and {} graphs", one_by_one.calls,
                          one_by_one.launches, kept.calls, kept.launches, kept.graphs));
  }
}

/// Launches of `kernel` by all ranks in a step of so many micro-batches of GPT-2.
std::int64_t launches_of(const std::string& kernel, int ranks, int stage, int micro_batches) {
  cuda::emulated::reset();
  local::run(ranks, [&](Communicator& world) {
    const auto device = cuda::open();
    // More elements of the embedding than the first range of a rounding in place, 2,048.
    const DecoderShape model =
        tiny_gpt2({{"layers", 1}, {"width", 64}, {"heads", 4}, {"vocabulary", 40}});
    Training training(world, *device, options(stage, DType::bf16), model, {1, 3}, micro_batches);
    for (int j = 0; j < micro_batches; ++j) training.train(Batch::random(3, 23, 1), 1.0F / 6);
    training.engine.step({.learning_rate = 1e-2});
  });
  const auto log = cuda::emulated::log();
  cuda::emulated::reset();
  return std::ranges::count(log, kernel, &cuda::emulated::Item::name);
}

// The embedding's gradient is summed in fp32. In place, each range of the rounding waits for the
// one before.
TEST(EmulatedTraining, RoundsTheEmbeddingsGradientInOneLaunchBesideTheFinishedGradient) {
  const auto in_two_micro_batches = [](int ranks, int stage) {
    return launches_of("convert", ranks, stage, 4) - launches_of("convert", ranks, stage, 2);
  };
  for (const int stage : {0, 2}) EXPECT_EQ(in_two_micro_batches(1, stage), 2) << stage;
  EXPECT_EQ(in_two_micro_batches(2, 1), 2 * 2);
  EXPECT_EQ(in_two_micro_batches(2, 3), 2 * 2 * 2) << "in place: 2,048 elements, then the rest";
}

}  // namespace
}  // namespace zero::testing
