// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/gathers.h"
#include "tests/collectives/recorder.h"
#include "tests/engine/plain.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A sealed engine in a world of one.
void alone(const plain::Setup& setup, const std::function<void(plain::Trainer&)>& body) {
  plain::run(1, setup, [&](plain::Trainer& trainer, Communicator&) { body(trainer); });
}

plain::Setup stage3(int accumulation_steps = 1) {
  return {plain::options(3), plain::odd_units(), accumulation_steps};
}

TEST(Lease, OutOfOrderNamesTheUseThatIsDue) {
  alone(stage3(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    EXPECT_THAT(error_of([&] { static_cast<void>(engine.forward(trainer.units()[1])); }),
                AllOf(HasSubstr("[rank 0] forward(first) is out of order"),
                      HasSubstr("compute step 0 of the sealed order is forward(embedding)"),
                      HasSubstr("declare the real order in seal()")));
    EXPECT_THAT(error_of([&] { static_cast<void>(engine.backward(trainer.units()[0])); }),
                HasSubstr("backward(embedding) is out of order"));
    EXPECT_EQ(trainer.step().step, 1);  // nothing was taken: the run goes on
  });
}

TEST(Lease, OutOfOrderStartsNoCollective) {
  local::run(2, [](Communicator& ranks) {
    testing::Recorder wire(ranks);
    const std::unique_ptr<Device> device = cpu::open();
    plain::Setup setup = stage3();
    setup.engine.limits.prefetch_elements = 0;
    plain::Trainer trainer(ranks, *device, setup);
    wire.clear();
    EXPECT_NE(error_of([&] { static_cast<void>(trainer.engine().forward(trainer.units()[2])); }),
              "no error");
    EXPECT_TRUE(wire.records().empty());
    trainer.step();
    EXPECT_FALSE(wire.records().empty());
  });
}

TEST(Lease, TwoAtOnceAreRefused) {
  alone(stage3(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    const ParameterLease lease = engine.forward(trainer.units()[0]);
    EXPECT_THAT(error_of([&] { static_cast<void>(engine.forward(trainer.units()[1])); }),
                HasSubstr("forward(first): the previous lease has not ended"));
    EXPECT_THAT(error_of([&] { engine.step({}); }), HasSubstr("step: 0 of 1 micro-batches"));
    EXPECT_THAT(error_of([&] { engine.begin_evaluation(); }),
                HasSubstr("begin_evaluation: only between optimizer steps"));
    EXPECT_THAT(error_of([&] { engine.states().publish_parameters(); }),
                HasSubstr("publish_parameters: only between optimizer steps"));
  });
}

TEST(Lease, MovedFromEndsOnceAtTheNewPlace) {
  alone(stage3(), [](plain::Trainer& trainer) {
    {
      ParameterLease first = trainer.engine().forward(trainer.units()[0]);
      const ParameterLease second = std::move(first);
      EXPECT_EQ(second["tokens"].count(), 31 * 17);
    }
    const ParameterLease next = trainer.engine().forward(trainer.units()[1]);
    EXPECT_EQ(next.at(1).count(), 13);
  });
}

TEST(Lease, AfterAllMicroBatchesAsksForAStep) {
  alone(stage3(2), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    trainer.forward();
    trainer.backward(0);
    EXPECT_THAT(
        error_of([&] { engine.step({}); }),
        HasSubstr("[rank 0] step: 1 of 2 micro-batches are done; run forward and backward"));
    EXPECT_THAT(error_of([&] { engine.begin_evaluation(); }), HasSubstr("only between optimizer"));
    trainer.forward();
    trainer.backward(1);
    EXPECT_THAT(error_of([&] { static_cast<void>(engine.forward(trainer.units()[0])); }),
                HasSubstr("forward(embedding): 2 of 2 micro-batches are done; call step() first"));
    EXPECT_EQ(engine.step({}).step, 1);
  });
}

TEST(Lease, OfAnUnknownUnitOrParameterListsWhatThereIs) {
  alone(stage3(), [](plain::Trainer& trainer) {
    Engine& engine = trainer.engine();
    EXPECT_THAT(error_of([&] { static_cast<void>(engine.forward({9})); }),
                HasSubstr("forward: unit 9 is not registered"));
    EXPECT_THAT(error_of([&] { static_cast<void>(engine.backward({-1})); }),
                HasSubstr("backward: unit -1 is not registered"));
    static_cast<void>(engine.forward(trainer.units()[0]));
    const ParameterLease lease = engine.forward(trainer.units()[1]);
    EXPECT_THAT(
        error_of([&] { static_cast<void>(lease["wieght"]); }),
        HasSubstr("unit \"first\" has no parameter \"wieght\"; it has weight, bias, scale"));
    EXPECT_THAT(error_of([&] { static_cast<void>(lease.at(3)); }),
                HasSubstr("unit \"first\" has no parameter 3; it has 3"));
    EXPECT_EQ(lease["first.bias"].data(), lease["bias"].data());  // full names do too
  });
}

TEST(Lease, IsRefusedBeforeSealAndUnitsAfterIt) {
  local::run(1, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    Engine engine(communicator, *device, plain::options(3));
    EXPECT_THAT(error_of([&] { engine.seal(); }), HasSubstr("seal: no unit is registered"));
    const UnitId unit = engine.add_unit("layer", {{"weight", {4}}});
    std::vector<float> values(4);
    const View view = View::of(std::span(values));
    const std::vector<std::pair<std::string, std::function<void()>>> calls = {
        {"forward", [&] { static_cast<void>(engine.forward(unit)); }},
        {"backward", [&] { static_cast<void>(engine.backward(unit)); }},
        {"step", [&] { engine.step({}); }},
        {"begin_evaluation", [&] { engine.begin_evaluation(); }},
        {"end_evaluation", [&] { engine.end_evaluation(); }},
        {"schedule", [&] { static_cast<void>(engine.schedule()); }},
        {"planned_axes", [&] { static_cast<void>(engine.planned_axes()); }},
        {"held", [&] { engine.states().held(StateKind::parameter); }},
        {"read", [&] { engine.states().read("layer.weight", StateKind::parameter, view); }},
        {"write", [&] { engine.states().write("layer.weight", StateKind::parameter, view); }},
        {"publish_parameters", [&] { engine.states().publish_parameters(); }},
        {"tensors", [&] { engine.states().tensors(StateKind::parameter); }},
        {"runs", [&] { engine.states().runs({}); }},
        {"copy", [&] { engine.states().copy({}, 0, view, device->compute()); }},
        {"set", [&] { engine.states().set({}, 0, view); }},
        {"restore", [&] { engine.states().restore(1); }},
        {"initialise", [&] { engine.states().initialise(); }},
        {"finish_reads", [&] { engine.states().finish_reads(); }},
        {"hash", [&] { engine.states().hash(); }},
        {"check_replicas", [&] { engine.states().check_replicas(); }},
        {"ownership", [&] { engine.ownership(); }},
        {"planned_axes", [&] { engine.planned_axes(); }},
    };
    for (const auto& [name, call] : calls) {
      EXPECT_THAT(error_of(call),
                  HasSubstr(name + ": the engine is not sealed; call seal() first"));
    }
    engine.seal();
    EXPECT_THAT(error_of([&] { engine.add_unit("late", {}); }),
                HasSubstr("add_unit(late): the engine is sealed"));
    EXPECT_THAT(error_of([&] { engine.seal(); }), HasSubstr("the engine is sealed already"));
  });
}

TEST(Lease, WithoutParametersRefusesToShowThem) {
  local::run(1, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    Engine engine(communicator, *device, plain::options(3));
    const UnitId unit = engine.add_unit("embedding", {{"tokens", {4, 4}}});
    engine.seal({.order = {{unit, Phase::forward}, {unit, Phase::backward, false}}});
    static_cast<void>(engine.forward(unit));
    const GradientLease lease = engine.backward(unit);
    EXPECT_THAT(error_of([&] { static_cast<void>(lease.parameter("tokens")); }),
                AllOf(HasSubstr("unit \"embedding\""), HasSubstr("needs_parameters = false")));
    EXPECT_EQ(lease.gradient("tokens").count(), 16);
    EXPECT_THAT(error_of([&] { static_cast<void>(lease.gradient(7)); }),
                HasSubstr("unit \"embedding\" has no parameter 7; it has 1"));
  });
}

TEST(Lease, EndedByAnExceptionStopsTheEngineAndStartsNoCollective) {
  local::run(2, [](Communicator& ranks) {
    testing::Recorder wire(ranks);
    const std::unique_ptr<Device> device = cpu::open();
    plain::Trainer trainer(ranks, *device, stage3());
    Engine& engine = trainer.engine();
    trainer.step();
    trainer.forward();
    EXPECT_THROW(
        {
          const GradientLease lease = engine.backward(trainer.units().back());
          wire.clear();
          throw std::runtime_error("the user's");
        },
        std::runtime_error);
    std::vector<float> values(13);
    const View view = View::of(std::span(values));
    const std::vector<std::function<void()>> calls = {
        [&] { static_cast<void>(engine.backward(trainer.units()[3])); },
        [&] { static_cast<void>(engine.forward(trainer.units()[0])); },
        [&] { engine.step({}); },
        [&] { engine.begin_evaluation(); },
        [&] { engine.states().publish_parameters(); },
        [&] { engine.states().read("first.bias", StateKind::parameter, view); },
        [&] { engine.states().write("first.bias", StateKind::parameter, view); },
        [&] { engine.states().hash(); }};
    for (const auto& call : calls) {
      EXPECT_THAT(error_of(call),
                  AllOf(HasSubstr(fmt::format("[rank {}]", ranks.rank())),
                        HasSubstr("the lease of unit \"head\" ended by an exception"),
                        HasSubstr("this engine cannot go on")));
    }
    EXPECT_TRUE(wire.records().empty());
  });
}

TEST(Lease, OpenedWhileAnotherExceptionIsHandledEndsNormally) {
  alone(stage3(), [](plain::Trainer& trainer) {
    try {
      throw std::runtime_error("earlier");
    } catch (const std::runtime_error&) {
      trainer.step();
    }
    EXPECT_EQ(trainer.step().step, 2);
  });
}

/// Two steps of one unit of three parameters, where the gradient of the second is written by
/// `write_second`; the state hash.
std::uint64_t with_second_gradient(int stage,
                                   const std::function<void(const GradientLease&)>& write_second) {
  std::uint64_t hash = 0;
  local::run(3, [&](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    Engine engine(communicator, *device, plain::options(stage));
    const UnitId unit = engine.add_unit("unit", {{"a", {70}, init::normal(1.0F)},
                                                 {"b", {70}, init::normal(1.0F)},
                                                 {"c", {5}, init::normal(1.0F)}});
    engine.seal();
    for (int i = 0; i < 2; ++i) {
      static_cast<void>(engine.forward(unit));
      {
        const GradientLease lease = engine.backward(unit);
        for (const std::string_view name : {"a", "c"}) {
          std::ranges::fill(lease.gradient(name).as<float>(), 0.5F);
        }
        write_second(lease);
      }
      engine.step({.learning_rate = 0.1});
    }
    const std::uint64_t found = engine.states().hash();
    if (communicator.rank() == 0) hash = found;
  });
  return hash;
}

TEST(Lease, CountsAGradientNeverAskedForAsZero) {
  for (int stage = 0; stage <= 3; ++stage) {
    const auto fill = [](float with) {
      return [with](const GradientLease& lease) {
        std::ranges::fill(lease.gradient("b").as<float>(), with);
      };
    };
    const std::uint64_t zeroed = with_second_gradient(stage, fill(0.0F));
    EXPECT_EQ(with_second_gradient(stage, [](const GradientLease&) {}), zeroed);
    EXPECT_NE(with_second_gradient(stage, fill(0.25F)), zeroed);
  }
}

TEST(Lease, GivesZerosToAddToWhereAnEarlierUseAskedForNothing) {
  for (int stage = 0; stage <= 3; ++stage) {
    local::run(1, [stage](Communicator& communicator) {
      const std::unique_ptr<Device> device = cpu::open();
      Engine engine(communicator, *device, plain::options(stage));
      const UnitId unit = engine.add_unit("tied", {{"a", {3}}, {"b", {3}}});
      engine.seal({.order = {{unit, Phase::both}, {unit, Phase::backward}}});
      {
        const GradientLease lease = engine.backward(unit);
        EXPECT_FALSE(lease.accumulates());
        std::ranges::fill(lease.gradient("a").as<float>(), 2.0F);
      }
      const GradientLease lease = engine.backward(unit);
      EXPECT_TRUE(lease.accumulates());
      EXPECT_THAT(lease.gradient("a").as<float>(), ::testing::Each(2.0F));
      EXPECT_THAT(lease.gradient("b").as<float>(), ::testing::Each(0.0F));
      const View second = lease.gradient("b");
      for (float& value : second.as<float>()) value += 1.0F;
      EXPECT_THAT(lease.gradient("b").as<float>(), ::testing::Each(1.0F));
    });
  }
}

TEST(Lease, ViewsOfOneUnitArePartsOfOneBufferAtStageThree) {
  alone(stage3(), [](plain::Trainer& trainer) {
    static_cast<void>(trainer.engine().forward(trainer.units()[0]));
    const ParameterLease lease = trainer.engine().forward(trainer.units()[1]);
    const auto* weight = static_cast<const std::byte*>(lease["weight"].data());
    const auto* bias = static_cast<const std::byte*>(lease["bias"].data());
    EXPECT_EQ(bias - weight, 384 * 4);  // 29 x 13 = 377 elements, up to a multiple of 64
  });
}

TEST(WindowArenaMemory, IsCheckedAgainstTheSchedule) {
  const std::unique_ptr<Device> device = cpu::open();
  Schedule schedule;
  schedule.arena_bytes = 100;
  schedule.windows.push_back({.bytes = 100, .conflicts = {}});
  const Waits waits;
  const Buffer small = device->allocate(99, DType::u8, MemoryClass::gathered, "windows");
  EXPECT_THAT(error_of([&] { WindowArena(schedule, small.view(), waits); }),
              HasSubstr("window arena has 99 bytes, the schedule needs 100"));
  const Buffer enough = device->allocate(100, DType::u8, MemoryClass::gathered, "windows");
  const WindowArena arena(schedule, enough.view(), waits);
  EXPECT_EQ(arena.view(0, DType::bf16, 50).count(), 50);
  EXPECT_THAT(error_of([&] { static_cast<void>(arena.view(0, DType::bf16, 51)); }),
              HasSubstr("cannot see 51 x bf16"));
}

}  // namespace
}  // namespace zero
