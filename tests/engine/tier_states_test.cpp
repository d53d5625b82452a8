// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Optimizer states in a file, as the calls of an engine and a plan see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/state_windows.h"
#include "tests/engine/plain.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/snapshot.h"
#include "tests/engine/state_story.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

using plain::kKeptKinds;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Ne;

TEST(StatesInAFile, AreReadWrittenSetHashedAndMadeAnewAsThoseInMemory) {
  expect_stories_of_memory(with_file);
}

TEST(StatesInAFile, GoOnFromStatesOfMemoryAndTheReverse) {
  expect_runs_to_go_on(std::identity(), with_file);
}

TEST(StatesInAFile, ThatDifferBetweenReplicasAreFound) {
  const std::map<StateKind, std::string> names = {{StateKind::parameter, "master values"},
                                                  {StateKind::moment0, "first moments"},
                                                  {StateKind::moment1, "second moments"}};
  for (const auto& [kind, name] : names) {
    for (const int stage : {0, 3}) {
      const MeshShape mesh = stage == 0 ? MeshShape{1, 2, 1} : MeshShape{2, 1, 1};
      std::vector<std::string> errors(2);
      plain::run(2, with_file(odd_setup(stage, mesh, DType::bf16, MomentFormat::fp32)),
                 [&, of = kind](plain::Trainer& trainer, Communicator& communicator) {
                   EngineStates& states = trainer.engine().states();
                   trainer.step();
                   states.check_replicas();
                   for (const LogicalTensor& tensor : states.tensors(of)) {
                     if (tensor.name != "wide.weight" || communicator.rank() == 0) continue;
                     std::vector<float> value{7};
                     states.set(tensor, 5000, View::of(std::span(value)));
                   }
                   errors[static_cast<std::size_t>(communicator.rank())] =
                       error_of([&] { states.check_replicas(); });
                 });
      EXPECT_THAT(errors,
                  Each(HasSubstr(name + " of \"wide.weight\" on rank 1 differ from those on "
                                        "rank 0")));
    }
  }
}

TEST(StatesInAFile, AreNotHeldInMemory) {
  plain::run(2, with_file(odd_setup(3, {1, 2, 1}, DType::bf16, MomentFormat::fp32)),
             [](plain::Trainer& trainer, Communicator& communicator) {
               EngineStates& states = trainer.engine().states();
               for (const StateKind kind : kKeptKinds) {
                 EXPECT_THAT(error_of([&] { states.held(kind); }),
                             AllOf(HasSubstr(fmt::format("[rank {}] held: ", communicator.rank())),
                                   HasSubstr("in a file, not in memory; use read() and write()")));
               }
               EXPECT_FALSE(states.held(StateKind::gradient).empty());
               EXPECT_THAT(trainer.engine().live_tensors(),
                           Each(Field(&LiveTensor::memory_class, Ne(MemoryClass::optimizer))));
             });
  plain::run(1, with_file(odd_setup(3, {1, 1, 1}, DType::fp32, MomentFormat::fp32)),
             [](plain::Trainer& trainer, Communicator&) {
               EngineStates& states = trainer.engine().states();
               EXPECT_FALSE(states.held(StateKind::parameter).empty());  // the compute copies
               EXPECT_THAT(error_of([&] { states.held(StateKind::moment1); }),
                           HasSubstr("in a file"));
             });
}

TEST(StatesInAFile, AndTheirWindowsTakeThePlanToTheByte) {
  for (const double ratio : {1.0, 0.5}) {
    for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::eight_bit}) {
      for (const int stage : {0, 3}) {
        plain::Setup setup = with_file(odd_setup(stage, {1, 3, 1}, DType::bf16, moments));
        setup.engine.tiers.optimizer_ratio = ratio;
        plain::run(3, setup, [&](plain::Trainer& trainer, Communicator& communicator) {
          Device& device = trainer.engine().device();
          const std::int64_t allocations = device.ledger().allocations();
          trainer.step();
          EXPECT_EQ(device.ledger().allocations(), allocations);
          const auto ranks = planning::communicator(communicator.rank(), 3, BackendKind::local);
          const auto plan = planning::open();
          const plain::Trainer planned(*ranks, *plan, setup);
          const MemorySnapshot real = device.ledger().snapshot();
          EXPECT_EQ(real.current, plan->ledger().snapshot().current);
          EXPECT_EQ(real.peak, plan->ledger().snapshot().peak);
          const MemorySnapshot file = device.file_ledger().snapshot();
          EXPECT_EQ(file.current, plan->file_ledger().snapshot().current);
          EXPECT_EQ(file.total, file.current_of(MemoryClass::optimizer));
          EXPECT_GT(file.total, 0);
          EXPECT_EQ(real.current_of(MemoryClass::optimizer) == 0,
                    ratio == 1 && moments == MomentFormat::fp32);
        });
      }
    }
  }
}

// A first unit that is larger than the share, as an embedding is, keeps no other out of the file.
TEST(StatesInAFile, AreOfEachUnitThatStillFitsIntoTheShare) {
  constexpr std::int64_t kRow = 4096;  // elements
  const auto rows_in_file = [](double ratio) {
    const auto device = planning::open();
    const auto ranks = planning::communicator(0, 1, BackendKind::local);
    EngineOptions options = plain::options(3, DType::bf16);
    options.tiers = small_windows("/folder");
    options.tiers.optimizer_ratio = ratio;
    Engine engine(*ranks, *device, options);
    engine.add_unit("embedding", {{"weight", {6, kRow}}});
    engine.add_unit("small", {{"weight", {1, kRow}}});
    engine.add_unit("large", {{"weight", {3, kRow}}});
    engine.seal();
    constexpr std::int64_t kElement = 12;  // bytes of its states
    return device->file_ledger().snapshot().total / (kRow * kElement);
  };
  EXPECT_EQ(rows_in_file(0), 0);
  EXPECT_EQ(rows_in_file(0.05), 0);
  EXPECT_EQ(rows_in_file(0.25), 1);
  EXPECT_EQ(rows_in_file(0.5), 4);
  EXPECT_EQ(rows_in_file(0.75), 7);
  EXPECT_EQ(rows_in_file(0.95), 7);
  EXPECT_EQ(rows_in_file(1), 10);
}

TEST(StatesInAFile, AreCutAtWholeBlocksOfEveryFormat) {
  const auto device = planning::open();
  StateHome home(*device, small_windows("/folder"));
  std::vector<Unit> units;
  for (const char* name : {"a", "b"}) {
    units.push_back(Unit::make(name, {{"weight", {10'000}}}, 1));
    units.back().lay_out(1, 0);
    Segment& segment = *units.back().trainable();
    segment.own = View(nullptr, 10'048, DType::bf16, device.get());
  }
  units[0].trainable()->moments[1] =
      home.reserve(10'048, DType::bf16, MemoryClass::optimizer, "moment");
  const std::vector<int> order{1, 0};
  const auto ranges = [&](std::int64_t most) {
    std::vector<FlatRange> all;
    for (const StatePiece& piece : cut_states(units, order, home, most)) {
      EXPECT_EQ(piece.away, piece.unit == 0);
      all.push_back(piece.range);
    }
    return all;
  };
  const FlatRange whole{0, 10'048};
  EXPECT_THAT(ranges(4096),
              ElementsAre(whole, FlatRange{0, 4096}, FlatRange{4096, 4096}, FlatRange{8192, 1856}));
  EXPECT_THAT(ranges(3 * 4096 - 1), ElementsAre(whole, FlatRange{0, 8192}, FlatRange{8192, 1856}));
  EXPECT_THAT(ranges(std::int64_t{1} << 40), ElementsAre(whole, whole));
}

TEST(UpdateRuns, WithinAPartHaveTheLogicalElementsOfTheWhole) {
  const UpdateRun run{.begin = 100,
                      .count = 70,
                      .learning_rate_scale = 2,
                      .weight_decay = 0.5,
                      .elements = {.parameter = 9, .first = 1000, .run = 16, .stride = 40}};
  for (std::int64_t begin = 90; begin < 180; ++begin) {
    for (std::int64_t end = begin; end < 180; ++end) {
      std::int64_t at = std::max(begin, run.begin);
      const std::vector<UpdateRun> parts = run.within({begin, end - begin});
      EXPECT_LE(parts.size(), 2U);
      for (const UpdateRun& part : parts) {
        ASSERT_EQ(part.begin, at);
        EXPECT_EQ(part.learning_rate_scale, 2);
        EXPECT_EQ(part.weight_decay, 0.5);
        EXPECT_EQ(part.elements.parameter, 9U);
        for (std::int64_t i = 0; i < part.count; ++i)
          ASSERT_EQ(part.elements.at(i), run.elements.at(at - run.begin + i));
        at += part.count;
      }
      EXPECT_EQ(at, std::max(std::min(end, run.begin + run.count), std::max(begin, run.begin)));
    }
  }
}

TEST(TierOptions, OutOfRangeAreNamed) {
  const auto error = [](const std::function<void(TierOptions&)>& change) {
    EngineOptions options;
    options.tiers = small_windows("/folder");
    change(options.tiers);
    return error_of([&] { validate(options); });
  };
  EXPECT_EQ(error([](TierOptions&) {}), "no error");
  EXPECT_THAT(error([](TierOptions& of) { of.optimizer_ratio = 1.5; }),
              HasSubstr("offloaded is 1.5, expected 0 to 1"));
  EXPECT_THAT(error([](TierOptions& of) { of.file.folder.clear(); }), HasSubstr("no folder"));
  EXPECT_THAT(error([](TierOptions& of) { of.windows.buffers = 0; }),
              HasSubstr("through 0 buffers, expected 1 or more"));
  EXPECT_THAT(error([](TierOptions& of) { of.windows.buffer_elements = 4095; }),
              HasSubstr("4095 elements, expected 4096 or more"));
  EXPECT_THAT(error([](TierOptions& of) { of.file.block_bytes = 5000; }),
              HasSubstr("5000 bytes, expected a multiple of 4096"));
}

TEST(TierOptions, MustBeEqualOnAllRanks) {
  std::vector<std::string> errors(2);
  local::run(2, [&](Communicator& communicator) {
    const auto device = cpu::open();
    EngineOptions options;
    if (communicator.rank() == 1) options.tiers = small_windows("/folder");
    Engine engine(communicator, *device, options);
    engine.add_unit("unit", {{"weight", {100}}});
    errors[static_cast<std::size_t>(communicator.rank())] = error_of([&] { engine.seal(); });
  });
  EXPECT_THAT(errors, Each(HasSubstr("optimizer states in a file")));
}

}  // namespace
}  // namespace zero::testing
