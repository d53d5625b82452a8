// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/engine/plain.h"
#include "tests/engine/toy_run.h"
#include "tests/errors.h"
#include "tests/support/test_device.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Evaluation, SeesTheParametersThatTrainingSees) {
  for (int stage = 0; stage <= 3; ++stage) {
    plain::run(3, {plain::options(stage), plain::odd_units(), 1},
               [](plain::Trainer& trainer, Communicator&) {
                 Engine& engine = trainer.engine();
                 const auto look = [&] {
                   std::vector<float> seen;
                   for (const UnitId unit : trainer.units()) {
                     const ParameterLease lease = engine.forward(unit);
                     const auto values = lease.at(0).as<const float>();
                     seen.insert(seen.end(), values.begin(), values.end());
                   }
                   return seen;
                 };
                 trainer.step();
                 engine.begin_evaluation();
                 const std::vector<float> first = look();
                 EXPECT_EQ(look(), first);
                 engine.end_evaluation();
                 EXPECT_EQ(look(), first);
                 EXPECT_THAT(first,
                             ::testing::Each(::testing::Truly([](float x) { return x == x; })));
               });
  }
}

TEST(Evaluation, ChangesNoBitOfTraining) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const toy::Job run{
          .world = 2, .engine = toy::options(stage, compute), .accumulation_steps = 2};
      const toy::Result plain = toy::train(run);
      toy::with_engine(run, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
        for (int i = 0; i < run.steps; ++i) {
          engine.begin_evaluation();
          for (int batch = 0; batch < 2; ++batch) model.evaluate(1000 + batch, model.loss_slot());
          engine.end_evaluation();
          toy::step(engine, model, communicator, run, i);
        }
        EXPECT_EQ(engine.states().hash(), plain.hash);
      });
    }
  }
}

TEST(Evaluation, LossIsTheSameOnEveryStageAndWorld) {
  std::set<double> losses;
  for (int stage = 0; stage <= 3; ++stage) {
    for (int i = 0; i < 3; ++i) {
      toy::Job run{.world = i == 0 ? 1 : 2, .engine = toy::options(stage, DType::bf16)};
      if (i == 2) run.order = testing::StreamOrder{.memory = MemorySpace::device};
      toy::with_engine(run, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
        engine.begin_evaluation();
        double* loss = model.loss_slot();
        model.evaluate(5, loss);
        engine.device().compute().synchronize();
        engine.end_evaluation();
        if (communicator.rank() == 0) losses.insert(*loss);
      });
    }
  }
  EXPECT_EQ(losses.size(), 1U);
}

TEST(Evaluation, CallsOutOfPlaceSayWhatIsWrong) {
  plain::run(
      1, {plain::options(3), plain::odd_units(), 1}, [](plain::Trainer& trainer, Communicator&) {
        Engine& engine = trainer.engine();
        EXPECT_THAT(error_of([&] { engine.end_evaluation(); }),
                    HasSubstr("[rank 0] end_evaluation: evaluation is not on"));
        engine.begin_evaluation();
        EXPECT_THAT(error_of([&] { engine.begin_evaluation(); }),
                    HasSubstr("begin_evaluation: evaluation is on already"));
        EXPECT_THAT(error_of([&] { engine.step({}); }), HasSubstr("step: "));
        EXPECT_THAT(error_of([&] { static_cast<void>(engine.backward(trainer.units()[0])); }),
                    HasSubstr("backward(embedding) is out of order"));
        EXPECT_THAT(error_of([&] { engine.states().publish_parameters(); }),
                    HasSubstr("publish_parameters: only between optimizer steps"));
        static_cast<void>(engine.forward(trainer.units()[0]));
        EXPECT_THAT(error_of([&] { engine.end_evaluation(); }),
                    HasSubstr("end_evaluation: only between optimizer steps and whole"));
        for (std::size_t unit = 1; unit < trainer.units().size(); ++unit)
          static_cast<void>(engine.forward(trainer.units()[unit]));
        engine.end_evaluation();
        EXPECT_EQ(trainer.step().step, 1);
      });
}

TEST(Evaluation, OfAnOrderWithoutForwardIsRefused) {
  local::run(1, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    Engine engine(communicator, *device, plain::options(3));
    const UnitId unit = engine.add_unit("unit", {{"w", {9}}});
    engine.seal({.order = {{unit, Phase::backward}}});
    EXPECT_THAT(error_of([&] { engine.begin_evaluation(); }),
                AllOf(HasSubstr("begin_evaluation"), HasSubstr("no forward use")));
    static_cast<void>(engine.backward(unit));
    EXPECT_EQ(engine.step({}).step, 1);
  });
}

TEST(Evaluation, LeavesOutWhatBackwardComputesAgain) {
  local::run(2, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    EngineOptions options = plain::options(3);
    options.limits.persistence_threshold = 0;
    options.limits.prefetch_elements = 0;
    Engine engine(communicator, *device, options);
    const UnitId a = engine.add_unit("a", {{"w", {999}}});
    const UnitId b = engine.add_unit("b", {{"w", {999}}});
    engine.seal({.order = {{a, Phase::forward},
                           {b, Phase::forward},
                           {a, Phase::recompute},
                           {b, Phase::backward},
                           {a, Phase::backward}}});
    EXPECT_EQ(engine.schedule().gathers, 5);
    engine.begin_evaluation();
    for (const UnitId unit : {a, b, a, b}) static_cast<void>(engine.forward(unit));
    engine.end_evaluation();
    for (const UnitId unit : {a, b}) static_cast<void>(engine.forward(unit));
    EXPECT_THAT(error_of([&] { static_cast<void>(engine.backward(b)); }),
                HasSubstr("backward(b) is out of order: compute step 2 of the sealed order is "
                          "forward(a)"));
    EXPECT_EQ(engine.forward(a).at(0).count(), 999);
    for (const UnitId unit : {b, a}) static_cast<void>(engine.backward(unit));
    EXPECT_EQ(engine.step({}).step, 1);
  });
}

TEST(Engines, OfOneProcessDoNotDisturbEachOther) {
  const plain::Setup first{plain::options(3, DType::bf16), plain::odd_units(), 2};
  const plain::Setup second{plain::options(1), plain::equal_units(3, 77), 1};
  const std::uint64_t first_alone = plain::train(2, first, 3);
  const std::uint64_t second_alone = plain::train(2, second, 3);
  plain::run(2, first, [&](plain::Trainer& one, Communicator& communicator) {
    plain::Trainer two(communicator, one.engine().device(), second);
    for (int i = 0; i < 3; ++i) {
      one.step();
      two.step();
    }
    EXPECT_EQ(one.engine().states().hash(), first_alone);
    EXPECT_EQ(two.engine().states().hash(), second_alone);
  });
}

}  // namespace
}  // namespace zero
