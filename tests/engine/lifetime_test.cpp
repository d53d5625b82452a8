// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Objects used after a move, out of their lifetime, or twice: an error, whose text says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/plain.h"
#include "tests/errors.h"
#include "tests/support/test_device.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

plain::Setup stage3() { return {plain::options(3), plain::odd_units(), 1}; }

/// Every member of a lease throws `text`.
void expect_gone(const ParameterLease& lease, const std::string& text) {
  EXPECT_THAT(error_of([&] { static_cast<void>(lease["tokens"]); }), HasSubstr(text));
  EXPECT_THAT(error_of([&] { static_cast<void>(lease.at(0)); }), HasSubstr(text));
}

TEST(Lifetime, AMovedFromLeaseSaysSo) {
  const std::string text = "a lease is used that was moved from; use the one it was moved to";
  plain::run(1, stage3(), [&](plain::Trainer& trainer, Communicator&) {
    Engine& engine = trainer.engine();
    {
      ParameterLease first = engine.forward(trainer.units()[0]);
      const ParameterLease second = std::move(first);
      expect_gone(first, text);  // NOLINT(bugprone-use-after-move): what is tested
      EXPECT_THAT(error_of([&] { first.repeat([] {}); }), HasSubstr(text));
    }
    for (std::size_t i = 1; i < trainer.units().size(); ++i)
      static_cast<void>(engine.forward(trainer.units()[i]));
    GradientLease first = engine.backward(trainer.units().back());
    const GradientLease second = std::move(first);
    // NOLINTNEXTLINE(bugprone-use-after-move)
    EXPECT_THAT(error_of([&] { static_cast<void>(first.gradient(0)); }), HasSubstr(text));
    EXPECT_THAT(error_of([&] { static_cast<void>(first.parameter(0)); }), HasSubstr(text));
    EXPECT_THAT(error_of([&] { static_cast<void>(first.accumulates()); }), HasSubstr(text));
  });
}

TEST(Lifetime, ALeaseThatOutlivesItsEngineSaysSo) {
  local::run(1, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    auto engine = std::make_unique<Engine>(communicator, *device, plain::options(3));
    const UnitId unit = engine->add_unit("embedding", {{"tokens", {4, 4}}});
    engine->seal();
    ParameterLease taken = engine->forward(unit);
    ParameterLease lease = std::move(taken);
    engine.reset();
    expect_gone(lease, "whose engine was destroyed; the engine must outlive its leases");
    const ParameterLease moved = std::move(lease);
    expect_gone(moved, "whose engine was destroyed");
  });  // and its end does nothing
}

// As the last work of a save does, which asks whether states are lost.
TEST(Lifetime, WorkThatTheEndOfAnEngineWaitsForMayAskTheEngine) {
  local::run(1, [](Communicator& communicator) {
    const auto device = testing::open({.policy = testing::StreamOrder::Policy::lazy});
    auto engine = std::make_unique<Engine>(communicator, *device, plain::options(3));
    engine->add_unit("embedding", {{"tokens", {4, 4}}});
    engine->seal();
    std::string said = "not asked";
    device->compute().submit_host("question", [&said, &asked = *engine, life = engine->lifetime()] {
      said = life.expired() ? "no engine" : asked.states().failure();
    });
    engine.reset();
    EXPECT_EQ(said, "");
  });
}

TEST(Lifetime, APlanningDeviceHasNoValues) {
  const auto device = planning::open();
  const auto ranks = planning::communicator(0, 2, BackendKind::local);
  Engine engine(*ranks, *device, plain::options(3));
  engine.add_unit("layer", {{"weight", {4}}});
  engine.seal();
  std::vector<float> values(4);
  EXPECT_THAT(error_of([&] { engine.states().hash(); }),
              AllOf(HasSubstr("[rank 0] hash: the device \"planning\" has no memory"),
                    HasSubstr("call this of an engine on the device of a run")));
  const View view = View::of(std::span(values));
  const LogicalTensor weight = engine.states().tensors(StateKind::parameter)[0];
  const std::vector<std::pair<std::string, std::function<void()>>> calls = {
      {"read", [&] { engine.states().read("layer.weight", StateKind::parameter, view); }},
      {"write", [&] { engine.states().write("layer.weight", StateKind::parameter, view); }},
      {"set", [&] { engine.states().set(weight, 0, view); }},
      {"copy", [&] { engine.states().copy(weight, 0, view.slice(0, 1), device->compute()); }},
      {"check_replicas", [&] { engine.states().check_replicas(); }},
  };
  for (const auto& [name, call] : calls) {
    EXPECT_THAT(error_of(call),
                HasSubstr(fmt::format("[rank 0] {}: the device \"planning\" has no memory", name)));
  }
}

TEST(Lifetime, TwoEnginesOfOneCommunicatorShareADevice) {
  const plain::Setup setup = stage3();
  const std::uint64_t alone = plain::train(2, setup, 2);
  plain::run(2, setup, [&](plain::Trainer& one, Communicator& communicator) {
    const std::unique_ptr<Device> other = cpu::open();
    EXPECT_THAT(error_of([&] { Engine(communicator, *other, plain::options(3)); }),
                AllOf(HasSubstr(fmt::format("[rank {}] Engine: the communicator serves another "
                                            "device (\"cpu\")",
                                            communicator.rank())),
                      HasSubstr("give both the same device"), HasSubstr("split(0, rank())")));
    { const Engine shared(communicator, one.engine().device(), plain::options(3)); }
    // As the message says: a communicator of its own.
    const auto own = communicator.split(0, communicator.rank());
    plain::Trainer two(*own, *other, setup);
    for (int i = 0; i < 2; ++i) {
      one.step();
      two.step();
    }
    EXPECT_EQ(one.engine().states().hash(), alone);
    EXPECT_EQ(two.engine().states().hash(), alone);
  });
}

TEST(Lifetime, AnEngineMayFollowAnotherOnAnotherDevice) {
  local::run(2, [](Communicator& communicator) {
    for (int i = 0; i < 2; ++i) {
      const std::unique_ptr<Device> device = cpu::open();
      plain::Trainer trainer(communicator, *device, stage3());
      EXPECT_EQ(trainer.step().step, 1);
    }
  });
}

}  // namespace
}  // namespace zero
