// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Shards of parameters in host memory, and any values in a file, beside a device whose memory host
// code cannot access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/state_home.h"
#include "tests/engine/plain.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/snapshot.h"
#include "tests/engine/state_story.h"
#include "tests/engine/toy_run.h"
#include "tests/errors.h"
#include "tests/support/combinations.h"

namespace zero::testing {
namespace {

using plain::kKeptKinds;
using ::testing::Each;
using ::testing::HasSubstr;

/// Places of optimizer states and of shards.
struct Places {
  Tier states;
  Tier shards;
};
constexpr std::array kAllPlaces{Places{Tier::device, Tier::host}, Places{Tier::host, Tier::host},
                                Places{Tier::file, Tier::device}, Places{Tier::device, Tier::file},
                                Places{Tier::file, Tier::file},   Places{Tier::file, Tier::host},
                                Places{Tier::host, Tier::file}};

std::string text(const Places& places) {
  constexpr std::array kNames{"device", "host", "file"};
  return fmt::format("states: {}, shards: {}", kNames.at(static_cast<std::size_t>(places.states)),
                     kNames.at(static_cast<std::size_t>(places.shards)));
}

TierOptions tiers_of(const Places& places, int buffers = 2) {
  TierOptions tiers = small_windows(kLateFolder);
  tiers.optimizer = places.states;
  tiers.parameters = places.shards;
  tiers.fetch_buffers = buffers;
  return tiers;
}

/// The same on a device whose memory is apart, with values in these places.
plain::Setup beside_device(plain::Setup setup, const Places& places, int buffers = 2) {
  setup.engine.tiers = tiers_of(places, buffers);
  setup.states_disk = late_disk;
  setup.memory = MemorySpace::device;
  return setup;
}

class EachPlace : public ::testing::TestWithParam<Places> {};

TEST_P(EachPlace, IsReadWrittenSetHashedLeasedAndMadeAnewAsTheDevicesMemory) {
  for (const auto& [mesh, formats] : cases_of({MeshShape{1, 2, 2}, MeshShape{1, 3, 1}},
                                              {std::pair{DType::fp32, MomentFormat::bf16},
                                               std::pair{DType::fp16, MomentFormat::eight_bit}})) {
    const plain::Setup setup = frozen_setup(mesh, formats.first, formats.second);
    EXPECT_EQ(stories(beside_device(setup, GetParam())), stories(setup))
        << plain::text(mesh) << ", " << name_of(formats.first);
  }
}

TEST_P(EachPlace, GoesOnFromTheDevicesMemoryAndTheReverse) {
  for (const auto& [moments, to_place, on_transfer] :
       cases_of({MomentFormat::eight_bit, MomentFormat::fp32}, {true, false}, {true, false})) {
    SCOPED_TRACE(fmt::format("moments {}, {}", name_of(moments), to_place ? "to" : "from"));
    const plain::Setup memory = frozen_setup({1, 2, 1}, DType::bf16, moments);
    const plain::Setup away = beside_device(memory, GetParam());
    expect_to_go_on(memory, {to_place ? memory : away, to_place ? away : memory, on_transfer});
  }
}

// A save exchanges values of other ranks' blocks through buffers of the device.
TEST_P(EachPlace, IsCopiedToTheDevice) {
  for (const MomentFormat moments :
       {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
    plain::Setup setup{plain::options(3, DType::bf16),
                       {{"wide", {{"weight", {130, 100}, init::normal(0.02F)}}},
                        {"still", {{"weight", {130, 100}, init::normal(0.02F), false}}}}};
    setup.engine.optimizer.moments = moments;
    plain::run(1, beside_device(setup, GetParam()), [&](plain::Trainer& trainer, Communicator&) {
      trainer.step();
      Engine& engine = trainer.engine();
      Device& device = engine.device();
      for (const StateKind kind : kKeptKinds) {
        for (const LogicalTensor& tensor : engine.states().tensors(kind)) {
          const std::vector<float> all = plain::read(engine, tensor.name, kind);
          constexpr std::int64_t kBegin = 4000;
          constexpr std::int64_t kCount = 777;
          for (Stream* stream : {&device.compute(), &device.transfer()}) {
            const Buffer copied =
                device.allocate(kCount, DType::fp32, MemoryClass::communication, "copied");
            engine.states().copy(tensor, kBegin, copied.view(), *stream);
            stream->synchronize();
            EXPECT_EQ(plain::seen(engine, copied.view()),
                      std::vector<float>(all.begin() + kBegin, all.begin() + kBegin + kCount))
                << tensor.name << ", " << name_of(kind) << ", moments " << name_of(moments);
          }
        }
      }
    });
  }
}

TEST_P(EachPlace, TakesThePlanToTheByteInEveryTier) {
  for (const auto& [compute, buffers] : cases_of({DType::bf16, DType::fp32}, {2, 1, 50})) {
    const plain::Setup setup =
        beside_device(frozen_setup({1, 3, 1}, compute, MomentFormat::fp32), GetParam(), buffers);
    plain::run(3, setup, [&](plain::Trainer& trainer, Communicator& communicator) {
      Device& device = trainer.engine().device();
      trainer.step();
      static_cast<void>(leased_values(trainer));
      const auto ranks = planning::communicator(communicator.rank(), 3, BackendKind::local);
      const auto plan = planning::open(1, MemorySpace::device);
      const plain::Trainer planned(*ranks, *plan, setup);
      EXPECT_EQ(device.ledger().snapshot().current, plan->ledger().snapshot().current);
      EXPECT_EQ(device.ledger().snapshot().peak, plan->ledger().snapshot().peak);
      EXPECT_EQ(device.host_bytes(), plan->host_bytes());
      EXPECT_EQ(device.file_ledger().snapshot().current, plan->file_ledger().snapshot().current);
    });
  }
}

TEST_P(EachPlace, IsNotHeldByTheDevice) {
  const auto expect = [](EngineStates& states, StateKind kind, Tier tier) {
    if (tier == Tier::device) return static_cast<void>(states.held(kind));
    EXPECT_THAT(error_of([&] { states.held(kind); }),
                HasSubstr(tier == Tier::file ? "in a file, not in memory"
                                             : "in host memory, not in the device's"));
  };
  plain::run(1, beside_device(frozen_setup({1, 1, 1}, DType::fp32, MomentFormat::fp32), GetParam()),
             [&](plain::Trainer& trainer, Communicator&) {
               EngineStates& states = trainer.engine().states();
               expect(states, StateKind::moment0, GetParam().states);
               expect(states, StateKind::parameter, GetParam().shards);  // their own masters
             });
}

TEST_P(EachPlace, HasTheBitsOfTheDevicesMemoryHoweverValuesPassThroughIt) {
  toy::Job run{.world = 2, .engine = toy::options(3, DType::bf16), .accumulation_steps = 2};
  run.shape = {.layers = 3, .width = 136, .vocabulary = 13, .rows = 2};
  const toy::Result expected = toy::train(run);
  run.states_disk = late_disk;
  auto policy = StreamOrder::Policy::lazy;
  const auto expect_same = [&](std::string_view what,
                               const std::function<void(EngineOptions&)>& change) {
    using enum StreamOrder::Policy;
    toy::Job changed = run;
    changed.order = StreamOrder{.policy = policy, .seed = 3, .memory = MemorySpace::device};
    changed.engine.tiers = tiers_of(GetParam());
    change(changed.engine);
    EXPECT_TRUE(toy::train(changed).same_training(expected)) << what;
    policy = policy == lazy ? seeded : lazy;
  };
  expect_same("usual", [](EngineOptions&) {});
  expect_same("without overlap", [](EngineOptions& of) { of.overlap = false; });
  expect_same("one buffer", [](EngineOptions& of) { of.tiers.fetch_buffers = 1; });
  expect_same("five buffers", [](EngineOptions& of) { of.tiers.fetch_buffers = 5; });
  expect_same("no prefetch", [](EngineOptions& of) { of.limits.prefetch_elements = 0; });
  expect_same("all ahead", [](EngineOptions& of) { of.limits.prefetch_elements = 1 << 20; });
  expect_same("usual limits", [](EngineOptions& of) { of.limits = {}; });
  expect_same("small ones stay whole",
              [](EngineOptions& of) { of.limits.persistence_threshold = 200; });
  expect_same("some units", [](EngineOptions& of) { of.tiers.parameters_in_memory = 20'000; });
  expect_same("states of some units", [](EngineOptions& of) { of.tiers.optimizer_ratio = 0.4; });
  expect_same("one window", [](EngineOptions& of) { of.tiers.windows.buffers = 1; });
  expect_same("no reads ahead or writes behind", [](EngineOptions& of) {
    of.tiers.windows.pipeline_read = of.tiers.windows.pipeline_write = false;
  });
  expect_same("odd windows", [](EngineOptions& of) { of.tiers.windows.buffer_elements = 8269; });
}

TEST_P(EachPlace, ChangesNoBitInAnyWorldAndType) {
  for (const auto& [world, compute, moments] :
       {std::tuple{1, DType::bf16, MomentFormat::fp32},
        std::tuple{2, DType::fp32, MomentFormat::bf16},
        std::tuple{4, DType::fp16, MomentFormat::eight_bit}}) {
    toy::Job run{.world = world, .engine = toy::options(3, compute)};
    run.shape = {.layers = 2, .width = 136, .vocabulary = 13, .rows = 2};
    run.engine.optimizer.moments = moments;
    run.read_rounds = 3;
    const toy::Result expected = toy::train(run);
    run.engine.tiers = tiers_of(GetParam());
    run.states_disk = late_disk;
    run.order = StreamOrder{.policy = StreamOrder::Policy::seeded,
                            .seed = static_cast<std::uint64_t>(world),
                            .memory = MemorySpace::device};
    EXPECT_TRUE(toy::train(run).same_training(expected)) << world << " ranks, " << name_of(compute);
  }
}

INSTANTIATE_TEST_SUITE_P(Places, EachPlace, ::testing::ValuesIn(kAllPlaces),
                         [](const ::testing::TestParamInfo<Places>& chosen) {
                           std::string name = text(chosen.param);
                           std::erase_if(name, [](char c) {
                             return !std::isalnum(static_cast<unsigned char>(c));
                           });
                           return name;
                         });

TEST(ShardsInHostMemory, AreChargedAsSuchAndTheirSlotsToTheDevice) {
  constexpr std::int64_t kElements = 10 * 4096;
  for (const Tier states : {Tier::device, Tier::host}) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const auto device = planning::open_gpu_memory();
      const auto ranks = planning::communicator(0, 1, BackendKind::local);
      EngineOptions options = plain::options(3, compute);
      options.tiers = with_host_shards(host_windows(3), states);
      Engine engine(*ranks, *device, options);
      for (const char* name : {"a", "b", "c"}) engine.add_unit(name, {{"weight", {kElements}}});
      engine.seal();
      const MemorySnapshot ledger = device->ledger().snapshot();
      const std::int64_t e = size_of(compute);
      EXPECT_EQ(ledger.current_of(MemoryClass::parameters), 3 * kElements * e);
      EXPECT_EQ(at(device->device_bytes().arenas, MemoryClass::parameters), 0);
      const std::int64_t of_states =
          (states == Tier::host ? 8 : 0) + (states == Tier::host && compute != DType::fp32 ? 4 : 0);
      const std::int64_t tile = compute == DType::fp32 ? 0 : StateHome::kDeviceTile;
      EXPECT_EQ(ledger.labels.at("staging/windows of states"),
                3 * 4096 * (of_states + e) + 2 * kElements * e + tile);
      EXPECT_GE(device->host_bytes(), 3 * kElements * (of_states + e));
      EXPECT_EQ(device->file_ledger().snapshot().total, 0);
    }
  }
}

TEST(ShardsInHostMemory, AreWantedByAllRanksOrNone) {
  std::vector<std::string> errors(2);
  local::run(2, [&](Communicator& communicator) {
    const auto device = open({.memory = MemorySpace::device});
    EngineOptions options;
    options.stage = 3;
    if (communicator.rank() == 1) options.tiers = with_host_shards(host_windows(), Tier::device);
    Engine engine(communicator, *device, options);
    engine.add_unit("unit", {{"weight", {100}}});
    errors[static_cast<std::size_t>(communicator.rank())] = error_of([&] { engine.seal(); });
  });
  EXPECT_THAT(errors, Each(HasSubstr("parameters in host memory")));
}

TEST(ValuesInAFile, BesideADeviceAreLostByNameIfTheDiskFails) {
  for (const Tier states : {Tier::device, Tier::file}) {
    plain::Setup setup = beside_device(frozen_setup({1, 2, 1}, DType::bf16, MomentFormat::fp32),
                                       {states, Tier::file});
    std::vector<std::shared_ptr<MemoryFiles>> disks;
    for (int rank = 0; rank < 2; ++rank) {
      disks.push_back(std::make_shared<MemoryFiles>());
      disks.back()->make_folder(kLateFolder);
    }
    setup.states_disk = [&](int rank) { return disks[static_cast<std::size_t>(rank)]; };
    std::vector<std::string> errors(2);
    plain::run(2, setup, [&](plain::Trainer& trainer, Communicator& communicator) {
      trainer.step();
      if (communicator.rank() == 1) disks[1]->fail_at(0);
      try {
        for (int i = 0; i < 2; ++i) trainer.step();
      } catch (const ValuesLost& error) {
        errors[static_cast<std::size_t>(communicator.rank())] = error.what();
      }
    });
    EXPECT_THAT(errors, Each(::testing::EndsWith("; values in it are lost")));
  }
}

}  // namespace
}  // namespace zero::testing
