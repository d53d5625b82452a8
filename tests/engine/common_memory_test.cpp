// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <thread>

#include "collectives/backends.h"
#include "collectives/forwarding_backend.h"
#include "tests/case_names.h"
#include "tests/engine/toy_run.h"
#include "tests/support/test_device.h"

namespace zero::toy {
namespace {

using testing::StreamOrder;

/// The engine on memory that its ranks have in common: parameter windows at stage 3 where nothing
/// is poisoned, compute copies at stages 1 and 2 where masters are apart.
Job job(int stage) {
  Job job{.world = 3, .engine = options(stage, DType::bf16), .accumulation_steps = 2, .steps = 3};
  job.engine.checked = false;
  job.engine.limits.prefetch_elements = 700;
  return job;
}

class CommonMemory : public ::testing::TestWithParam<int> {};

TEST_P(CommonMemory, GivesTheBitsOfPrivateMemoryInEveryOrderOfStreams) {
  const Result expected = train(job(0));
  EXPECT_TRUE(train(job(GetParam())).same_training(expected));
  Job ordered = job(GetParam());
  ordered.order = {.policy = StreamOrder::Policy::lazy};
  EXPECT_TRUE(train(ordered).same_training(expected));
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    ordered.order = {.policy = StreamOrder::Policy::seeded, .seed = seed};
    EXPECT_TRUE(train(ordered).same_training(expected)) << "seed " << seed;
  }
}

TEST(CommonMemoryOfWholeUnits, GivesTheBitsOfPrivateMemoryAtStageThree) {
  const Result expected = train(job(0));
  Job whole = job(3);
  whole.engine.limits.persistence_threshold = std::int64_t{1} << 40;
  EXPECT_TRUE(train(whole).same_training(expected));
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    whole.order = {.policy = StreamOrder::Policy::seeded, .seed = seed};
    EXPECT_TRUE(train(whole).same_training(expected)) << "seed " << seed;
  }
}

/// Ranks that are late, each time another one: sleeps before and behind each collective.
class LateBackend final : public ForwardingBackend {
 public:
  LateBackend(const Communicator& inner, unsigned seed) : ForwardingBackend(inner), random_(seed) {}

  void all_gather(View mine, const Slices& full, Stream& stream, const Tag& tag) override {
    late(stream, [&] { ForwardingBackend::all_gather(mine, full, stream, tag); });
  }
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override {
    late(stream,
         [&] { ForwardingBackend::reduce_scatter(full, epilogue, workspace, stream, tag); });
  }
  void all_reduce(View values, ReduceOp op, Stream& stream, const Tag& tag) override {
    late(stream, [&] { ForwardingBackend::all_reduce(values, op, stream, tag); });
  }
  void all_to_all(const Slices& send, const Slices& receive, Stream& stream,
                  const Tag& tag) override {
    late(stream, [&] { ForwardingBackend::all_to_all(send, receive, stream, tag); });
  }
  void broadcast(View values, int root, Stream& stream, const Tag& tag) override {
    late(stream, [&] { ForwardingBackend::broadcast(values, root, stream, tag); });
  }
  void barrier(Stream& stream, const Tag& tag) override {
    late(stream, [&] { ForwardingBackend::barrier(stream, tag); });
  }

 private:
  template <typename Collective>
  void late(Stream& stream, const Collective& collective) {
    sleep(stream);
    collective();
    sleep(stream);
  }
  void sleep(Stream& stream) {
    const std::chrono::microseconds time(random_() % 4 == 0 ? random_() % 400 : 0);
    stream.submit("late", [time] { std::this_thread::sleep_for(time); });
  }

  std::minstd_rand random_;
};

TEST_P(CommonMemory, GivesTheSameBitsWhateverRankIsLate) {
  const Job run = job(GetParam());
  const Result expected = train(job(0));
  for (unsigned seed = 0; seed < 3; ++seed) {
    local::run(run.world, [&](Communicator& communicator) {
      Communicator late(std::make_shared<LateBackend>(
          communicator, seed * 8 + static_cast<unsigned>(communicator.rank()) + 1));
      const std::unique_ptr<Device> device = cpu::open();
      Engine engine(late, *device, run.engine);
      Model model(engine, run.shape);
      engine.seal({.order = model.order(), .accumulation_steps = run.accumulation_steps});
      for (int i = 0; i < run.steps; ++i) {
        engine.begin_evaluation();
        model.evaluate(i, model.loss_slot());
        engine.end_evaluation();
        ZERO_CHECK(step(engine, model, communicator, run, i).gradient_norm ==
                       expected.norms[static_cast<std::size_t>(i)],
                   "the norm of step {} differs", i);
      }
      ZERO_CHECK(engine.states().hash() == expected.hash, "the state differs, seed {}", seed);
    });
  }
}

/// Counts the bytes of symmetric memory.
class CountingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  Buffer allocate_symmetric(Device& device, std::int64_t count, DType dtype,
                            MemoryClass memory_class, std::string_view label) override {
    symmetric_bytes += count * size_of(dtype);
    return ForwardingBackend::allocate_symmetric(device, count, dtype, memory_class, label);
  }
  std::int64_t symmetric_bytes = 0;
};

TEST(SymmetricMemory, HoldsTheShardsThatStage3Gathers) {
  const Job run = job(3);
  local::run(run.world, [&](Communicator& communicator) {
    const auto backend = std::make_shared<CountingBackend>(communicator);
    Communicator counted(backend);
    const std::unique_ptr<Device> device = cpu::open();
    Engine engine(counted, *device, run.engine);
    Model model(engine, run.shape);
    engine.seal({.order = model.order(), .accumulation_steps = run.accumulation_steps});
    EXPECT_GT(backend->symmetric_bytes, 0);
    EXPECT_EQ(backend->symmetric_bytes,
              device->ledger().snapshot().current_of(MemoryClass::parameters));
  });
}

INSTANTIATE_TEST_SUITE_P(Stages, CommonMemory, ::testing::Values(1, 2, 3),
                         zero::testing::kCaseName);

/// One unit of ones, and a use of it that ends late on all ranks but the first.
class LateReaders : public ::testing::TestWithParam<int> {
 protected:
  static constexpr std::int64_t kCount = 300;

  static void with_engine(const std::function<void(Engine&, UnitId, int rank)>& body,
                          const std::vector<Phase>& order, bool lazy) {
    local::run(3, [&](Communicator& communicator) {
      const auto device = lazy ? testing::open({.policy = StreamOrder::Policy::lazy}) : cpu::open();
      EngineOptions engine_options = options(GetParam(), DType::bf16);
      engine_options.checked = false;
      Engine engine(communicator, *device, engine_options);
      const UnitId unit = engine.add_unit("unit", {{"weight", {kCount}, init::ones()}});
      std::vector<Use> uses;
      for (const Phase phase : order) uses.push_back({unit, phase});
      engine.seal({.order = uses});
      body(engine, unit, communicator.rank());
      device->compute().synchronize();
      device->communication().synchronize();
    });
  }

  /// Submits a reader: `*same` becomes whether all are `value`, after a while on late ranks.
  static void read(Stream& compute, View weight, float value, int rank, char* same) {
    compute.submit("read", [=] {
      if (rank != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      *same = std::ranges::all_of(weight.as<const bfloat16>(),
                                  [&](bfloat16 one) { return to_float(one) == value; });
    });
  }
};

TEST_P(LateReaders, ReadOldValuesWhenAPeerHasAlreadyWrittenNewOnes) {
  with_engine(
      [](Engine& engine, UnitId unit, int rank) {
        for (const float value : {1.0F, 2.0F, 3.0F}) {
          char same = 0;
          engine.begin_evaluation();
          read(engine.device().compute(), engine.forward(unit)["weight"], value, rank, &same);
          engine.end_evaluation();
          std::vector<float> next(kCount, value + 1);
          engine.states().write("unit.weight", StateKind::parameter, View::of(std::span(next)));
          ZERO_CHECK(same == 1, "rank {} did not find {} everywhere", rank, value);
        }
      },
      {Phase::forward, Phase::backward}, false);
}

TEST_P(LateReaders, ReadOldValuesWhenAPeerHasAlreadyInitialisedItsOwn) {
  with_engine(
      [](Engine& engine, UnitId unit, int rank) {
        std::vector<float> twos(kCount, 2.0F);
        engine.states().write("unit.weight", StateKind::parameter, View::of(std::span(twos)));
        char same = 0;
        engine.begin_evaluation();
        read(engine.device().compute(), engine.forward(unit)["weight"], 2.0F, rank, &same);
        engine.end_evaluation();
        engine.states().initialise();
        ZERO_CHECK(same == 1, "rank {} did not find 2 everywhere", rank);
      },
      {Phase::forward, Phase::backward}, false);
}

TEST_P(LateReaders, ReadOldValuesWhenAPeerHasAlreadyUpdatedItsOwn) {
  with_engine(
      [](Engine& engine, UnitId unit, int rank) {
        std::array<char, 2> same{};
        Stream& compute = engine.device().compute();
        read(compute, engine.forward(unit)["weight"], 1.0F, rank, &same[0]);
        {
          const GradientLease lease = engine.backward(unit);
          compute.submit("gradient", [gradient = lease.gradient("weight")] {
            std::ranges::fill(gradient.as<bfloat16>(), to_bfloat16(1.0F));
          });
        }
        // Nothing of the step waits for this use but the engine's own order.
        read(compute, engine.forward(unit)["weight"], 1.0F, rank, &same[1]);
        engine.step({.learning_rate = 0.5});
        compute.synchronize();
        ZERO_CHECK(same[0] == 1 && same[1] == 1, "rank {} found new values too early", rank);
      },
      {Phase::forward, Phase::backward, Phase::forward}, true);
}

INSTANTIATE_TEST_SUITE_P(Stages, LateReaders, ::testing::Values(1, 2, 3), zero::testing::kCaseName);

}  // namespace
}  // namespace zero::toy
