// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "partition/flat_layout.h"
#include "tests/engine/plain.h"

namespace zero {
namespace {

using ::testing::Each;

/// A mixed unit, a frozen unit and a trainable one.
std::vector<plain::UnitSpec> half_frozen() {
  return {{"mixed",
           {{"frozen", {37, 5}, init::normal(1.0F), false},
            {"weight", {23, 7}, init::normal(1.0F)},
            {"frozen_bias", {5}, init::normal(1.0F), false},
            {"bias", {7}, init::zeros()}}},
          {"still", {{"weight", {33, 3}, init::normal(1.0F), false}}},
          {"last", {{"weight", {19, 3}, init::normal(1.0F)}}}};
}

plain::Setup setup(int stage, DType compute, std::int64_t threshold = 0) {
  plain::Setup setup{plain::options(stage, compute), half_frozen(), 1};
  setup.engine.limits.persistence_threshold = threshold;
  return setup;
}

TEST(Frozen, ParametersAreUnchangedByStepsWhileOthersMove) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int world : {1, 3}) {
        for (const std::int64_t threshold : {0, 10, 1000}) {
          plain::run(world, setup(stage, compute, threshold),
                     [](plain::Trainer& trainer, Communicator&) {
                       Engine& engine = trainer.engine();
                       const auto value = [&](std::string_view name) {
                         return plain::read(engine, name, StateKind::parameter);
                       };
                       const std::vector<std::string> frozen = {"mixed.frozen", "mixed.frozen_bias",
                                                                "still.weight"};
                       std::vector<std::vector<float>> before;
                       for (const std::string& name : frozen) before.push_back(value(name));
                       const std::vector<float> weight = value("mixed.weight");
                       trainer.step();
                       trainer.step();
                       for (std::size_t i = 0; i < frozen.size(); ++i)
                         EXPECT_EQ(value(frozen[i]), before[i]) << frozen[i];
                       EXPECT_NE(value("mixed.weight"), weight);
                     });
        }
      }
    }
  }
}

TEST(Frozen, ParametersHaveNoGradientAndNoStates) {
  plain::run(2, setup(3, DType::bf16), [](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    for (const StateKind kind : {StateKind::gradient, StateKind::moment0, StateKind::moment1}) {
      std::vector<std::string> names;
      for (const LogicalTensor& tensor : engine.states().held(kind)) names.push_back(tensor.name);
      EXPECT_THAT(names, ::testing::ElementsAre("mixed.weight", "mixed.bias", "last.weight"));
    }
    EXPECT_EQ(engine.states().held(StateKind::parameter).size(), 6U);
    trainer.forward();
    static_cast<void>(engine.backward(trainer.units()[2]));
    static_cast<void>(engine.backward(trainer.units()[1]));
    const GradientLease lease = engine.backward(trainer.units()[0]);
    EXPECT_TRUE(lease.gradient("frozen").empty());
    EXPECT_EQ(lease.parameter("frozen").count(), 37 * 5);
    EXPECT_EQ(lease.gradient("weight").count(), 23 * 7);
  });
}

TEST(Frozen, ParametersCostTheirComputeCopyOnly) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int world : {1, 2, 5}) {
      const auto communicator = planning::communicator(0, world, BackendKind::local);
      const auto device = planning::open();
      const plain::Trainer trainer(*communicator, *device, setup(stage, DType::bf16));
      std::int64_t all = 0;
      std::int64_t trainable = 0;
      for (const plain::UnitSpec& unit : half_frozen()) {
        for (const bool pass : {true, false}) {
          std::vector<ParameterSpec> chosen;
          for (const ParameterSpec& spec : unit.parameters) {
            if (spec.trainable == pass) chosen.push_back(spec);
          }
          const std::int64_t padded = FlatLayout(chosen, world, 0).padded();
          all += padded;
          if (pass) trainable += padded;
        }
      }
      const MemorySnapshot snapshot = device->ledger().snapshot();
      EXPECT_EQ(snapshot.current_of(MemoryClass::parameters), 2 * all / (stage == 3 ? world : 1));
      EXPECT_EQ(snapshot.current_of(MemoryClass::gradients),
                2 * trainable / (stage >= 2 ? world : 1));
      EXPECT_EQ(snapshot.current_of(MemoryClass::optimizer),
                12 * trainable / (stage >= 1 ? world : 1));
    }
  }
}

TEST(Frozen, HashIsTheSameOnEveryStageAndThreshold) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    std::set<std::uint64_t> hashes;
    for (int stage = 0; stage <= 3; ++stage) {
      for (const std::int64_t threshold : {0, 10, 1000})
        hashes.insert(plain::train(3, setup(stage, compute, threshold), 2));
      plain::Setup apart = setup(stage, compute, 10);
      apart.memory = MemorySpace::device;
      hashes.insert(plain::train(3, apart, 2));
    }
    EXPECT_EQ(hashes.size(), 1U);
  }
}

TEST(Frozen, ParametersAreReplacedByAWriteEverywhere) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::int64_t threshold : {0, 1000}) {
      plain::run(3, setup(stage, DType::bf16, threshold),
                 [](plain::Trainer& trainer, Communicator&) {
                   Engine& engine = trainer.engine();
                   for (const auto& [name, count] :
                        {std::pair{"mixed.frozen", 37 * 5}, std::pair{"still.weight", 33 * 3}}) {
                     std::vector<float> values(static_cast<std::size_t>(count), 1.5F);
                     engine.states().write(name, StateKind::parameter, View::of(std::span(values)));
                     EXPECT_EQ(plain::read(engine, name, StateKind::parameter), values);
                   }
                   const bfloat16 expected = to_bfloat16(1.5F);
                   {
                     const ParameterLease lease = engine.forward(trainer.units()[0]);
                     EXPECT_THAT(lease["frozen"].as<const bfloat16>(), Each(expected));
                   }
                   const ParameterLease lease = engine.forward(trainer.units()[1]);
                   EXPECT_THAT(lease["weight"].as<const bfloat16>(), Each(expected));
                 });
    }
  }
}

TEST(Frozen, UnitsNeedNoBackward) {
  for (int stage = 0; stage <= 3; ++stage) {
    local::run(2, [stage](Communicator& communicator) {
      const std::unique_ptr<Device> device = cpu::open();
      Engine engine(communicator, *device, plain::options(stage));
      const UnitId frozen = engine.add_unit("frozen", {{"w", {9}, init::ones(), false}});
      const UnitId trained = engine.add_unit("trained", {{"w", {9}, init::ones()}});
      engine.seal({.order = {{frozen, Phase::forward}, {trained, Phase::both}}});
      for (int i = 1; i <= 2; ++i) {
        EXPECT_THAT(engine.forward(frozen).at(0).as<const float>(), Each(1.0F));
        static_cast<void>(engine.backward(trained));
        EXPECT_EQ(engine.step({.learning_rate = 0.1}).step, i);
      }
    });
  }
}

TEST(Frozen, TrafficIsThePlanFromTheFirstStep) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const std::int64_t threshold : {0, 10, 1000}) {
      plain::run(3, setup(stage, DType::bf16, threshold),
                 [](plain::Trainer& trainer, Communicator&) {
                   const TrafficCounter plan = trainer.engine().planned_axes().total();
                   for (int i = 0; i < 2; ++i) {
                     const TrafficCounter traffic = trainer.step().traffic;
                     for (const Operation kind :
                          {Operation::all_gather, Operation::reduce_scatter, Operation::all_reduce})
                       EXPECT_EQ(traffic.of(kind), plan.of(kind)) << name_of(kind);
                   }
                 });
    }
  }
}

}  // namespace
}  // namespace zero
