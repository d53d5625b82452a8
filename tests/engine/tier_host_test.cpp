// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Optimizer states in host memory beside a device whose memory host code cannot access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/state_home.h"
#include "tests/engine/plain.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/snapshot.h"
#include "tests/engine/state_story.h"
#include "tests/engine/toy_run.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

using plain::kKeptKinds;
using ::testing::HasSubstr;

/// The same on a device whose memory is apart.
plain::Setup on_device(plain::Setup setup) {
  setup.memory = MemorySpace::device;
  return setup;
}
/// And with optimizer states in host memory.
plain::Setup beside_device(plain::Setup setup) {
  setup.engine.tiers = host_windows();
  return on_device(std::move(setup));
}

TEST(StatesInHostMemory, AreReadWrittenSetHashedAndMadeAnewAsThoseOfTheDevice) {
  expect_stories_of_memory(beside_device);
}

TEST(StatesInHostMemory, GoOnFromStatesOfTheDeviceAndTheReverse) {
  expect_runs_to_go_on(on_device, beside_device);
}

TEST(StatesInHostMemory, HaveTheBitsOfTheDevicesHoweverTheyPassThroughItsMemory) {
  toy::Job run{.world = 2, .engine = toy::options(2, DType::bf16), .accumulation_steps = 2};
  run.shape = {.layers = 2, .width = 136, .vocabulary = 13, .rows = 2};
  const toy::Result expected = toy::train(run);
  const auto expect_same = [&](std::string_view what,
                               const std::function<void(toy::Job&)>& change) {
    for (const auto policy : {StreamOrder::Policy::lazy, StreamOrder::Policy::seeded}) {
      toy::Job changed = run;
      changed.order = StreamOrder{.policy = policy, .seed = 3, .memory = MemorySpace::device};
      changed.engine.tiers = host_windows();
      change(changed);
      EXPECT_TRUE(toy::train(changed).same_training(expected)) << what;
    }
  };
  const auto expect_with = [&](std::string_view what,
                               const std::function<void(TierOptions&)>& change) {
    expect_same(what, [&](toy::Job& of) { change(of.engine.tiers); });
  };
  for (const int stage : {0, 1, 2, 3})
    expect_same("a stage", [&](toy::Job& of) { of.engine.stage = stage; });
  for (const int buffers : {1, 2, 5})
    expect_with("buffers", [&](TierOptions& of) { of.windows.buffers = buffers; });
  expect_with("no reads ahead", [](TierOptions& of) { of.windows.pipeline_read = false; });
  expect_with("no writes behind", [](TierOptions& of) { of.windows.pipeline_write = false; });
  expect_with("neither", [](TierOptions& of) {
    of.windows.pipeline_read = of.windows.pipeline_write = false;
  });
  expect_with("odd windows", [](TierOptions& of) { of.windows.buffer_elements = 2 * 4096 + 77; });
  expect_with("whole units",
              [](TierOptions& of) { of.windows.buffer_elements = std::int64_t{1} << 40; });
  expect_with("some units", [](TierOptions& of) { of.optimizer_ratio = 0.6; });
  expect_with("no unit", [](TierOptions& of) { of.optimizer_ratio = 0; });
}

TEST(StatesInHostMemory, AreNotHeldByTheDevice) {
  plain::run(1, beside_device(odd_setup(3, {1, 1, 1}, DType::bf16, MomentFormat::fp32)),
             [](plain::Trainer& trainer, Communicator&) {
               EngineStates& states = trainer.engine().states();
               for (const StateKind kind : kKeptKinds) {
                 EXPECT_THAT(
                     error_of([&] { states.held(kind); }),
                     HasSubstr("in host memory, not in the device's; use read() and write"));
               }
               EXPECT_FALSE(states.held(StateKind::gradient).empty());
             });
}

TEST(StatesInHostMemory, AreChargedAsSuchAndTheirWindowsToTheDevice) {
  constexpr std::int64_t kElements = 10 * 4096;
  const auto expect = [](DType compute, MomentFormat moments, std::int64_t element,
                         std::int64_t tile) {
    const auto device = planning::open_gpu_memory();
    const auto ranks = planning::communicator(0, 1, BackendKind::local);
    EngineOptions options = plain::options(3, compute);
    options.tiers = host_windows(3);
    options.optimizer.moments = moments;
    Engine engine(*ranks, *device, options);
    engine.add_unit("unit", {{"weight", {kElements}}});
    engine.seal();
    const MemorySnapshot ledger = device->ledger().snapshot();
    const std::int64_t scales =
        moments == MomentFormat::eight_bit ? 2 * kElements / kMomentBlock * 4 : 0;
    EXPECT_EQ(ledger.current_of(MemoryClass::optimizer), kElements * element + scales);
    EXPECT_GE(at(device->device_bytes().arenas, MemoryClass::optimizer), scales);
    EXPECT_LT(at(device->device_bytes().arenas, MemoryClass::optimizer), scales + 1024);
    EXPECT_EQ(ledger.labels.at("staging/windows of states"), 3 * 4096 * element + tile);
    EXPECT_GE(at(device->device_bytes().arenas, MemoryClass::staging), 3 * 4096 * element + tile);
    EXPECT_EQ(device->file_ledger().snapshot().total, 0);
  };
  expect(DType::bf16, MomentFormat::fp32, 12, 0);
  expect(DType::bf16, MomentFormat::bf16, 8, StateHome::kDeviceTile);
  expect(DType::fp16, MomentFormat::eight_bit, 6, StateHome::kDeviceTile);
  expect(DType::fp32, MomentFormat::fp32, 8, 0);  // the parameters are their own masters
}

// On a CPU its memory is host memory already.
TEST(ValuesInHostMemory, AreOnACpuWhereTheyAre) {
  const auto totals = [](const TierOptions& tiers) {
    const auto device = planning::open();
    const auto ranks = planning::communicator(0, 1, BackendKind::local);
    EngineOptions options = plain::options(3, DType::bf16);
    options.tiers = tiers;
    Engine engine(*ranks, *device, options);
    engine.add_unit("unit", {{"weight", {100, 100}}});
    engine.seal();
    return device->ledger().snapshot().labels;
  };
  EXPECT_EQ(totals(host_windows()), totals({}));
  EXPECT_EQ(totals(with_host_shards(host_windows())), totals({}));
}

TEST(StatesInHostMemory, AreWantedByAllRanksOrNone) {
  std::vector<std::string> errors(2);
  local::run(2, [&](Communicator& communicator) {
    const auto device = open({.memory = MemorySpace::device});
    EngineOptions options;
    if (communicator.rank() == 1) options.tiers = host_windows();
    Engine engine(communicator, *device, options);
    engine.add_unit("unit", {{"weight", {100}}});
    errors[static_cast<std::size_t>(communicator.rank())] = error_of([&] { engine.seal(); });
  });
  EXPECT_THAT(errors, ::testing::Each(HasSubstr("optimizer states in host memory")));
}

}  // namespace
}  // namespace zero::testing
