// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Shards of parameters in a file, as the calls of an engine and a plan see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/checked_math.h"
#include "partition/flat_layout.h"
#include "tests/engine/engine_parts.h"
#include "tests/engine/small_windows.h"
#include "tests/engine/state_story.h"
#include "tests/errors.h"
#include "tests/support/combinations.h"

namespace zero::testing {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

plain::Setup with_shards_in_file(plain::Setup setup, Tier optimizer = Tier::file, int buffers = 2) {
  setup.engine.tiers = with_shards(small_windows(kLateFolder), optimizer, buffers);
  setup.states_disk = late_disk;
  return setup;
}

TEST(ShardsInAFile, AreReadWrittenSetHashedLeasedAndMadeAnewAsThoseInMemory) {
  for (const auto& [mesh, formats] : cases_of(
           {MeshShape{1, 1, 1}, MeshShape{1, 3, 1}, MeshShape{2, 2, 1}, MeshShape{1, 2, 2},
            MeshShape{1, 1, 2}},
           {std::pair{DType::bf16, MomentFormat::fp32}, std::pair{DType::fp32, MomentFormat::bf16},
            std::pair{DType::fp16, MomentFormat::eight_bit}})) {
    const auto& [compute, moments] = formats;
    const plain::Setup setup = frozen_setup(mesh, compute, moments);
    const auto expected = stories(setup);
    for (const Tier optimizer : {Tier::device, Tier::file}) {
      EXPECT_EQ(stories(with_shards_in_file(setup, optimizer)), expected)
          << plain::text(mesh) << ", " << name_of(compute) << ", optimizer "
          << (optimizer == Tier::file ? "in the file" : "in memory");
    }
  }
}

TEST(ShardsInAFile, GoOnFromThoseInMemoryAndTheReverse) {
  for (const auto& [compute, to_file, on_transfer] :
       cases_of({DType::bf16, DType::fp32}, {true, false}, {true, false})) {
    SCOPED_TRACE(fmt::format("{}, {} the file", name_of(compute), to_file ? "to" : "from"));
    const plain::Setup memory = frozen_setup({1, 2, 1}, compute, MomentFormat::fp32);
    const plain::Setup file = with_shards_in_file(memory);
    expect_to_go_on(memory, {to_file ? memory : file, to_file ? file : memory, on_transfer});
  }
}

/// The shard of a segment, as it is in the file.
std::vector<std::byte> bytes_of(Engine& engine, const View& shard) {
  std::vector<std::byte> all;
  StateAccess& access = EngineParts::of(engine).parts().access;
  access.read(shard, [&](std::int64_t, const View& piece) {
    const auto* const begin = static_cast<const std::byte*>(piece.data());
    all.insert(all.end(), begin, begin + piece.bytes());
  });
  access.settle();
  return all;
}

// A window begins as whatever was updated in it before, and updates of small formats leave padding.
TEST(ShardsInAFile, HaveZerosBetweenParametersWhateverTheirWindowHeldBefore) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    plain::Setup setup =
        with_shards_in_file(frozen_setup({1, 1, 1}, compute, MomentFormat::eight_bit), Tier::file);
    setup.engine.tiers.windows.buffers = 1;
    plain::run(1, setup, [](plain::Trainer& trainer, Communicator&) {
      Engine& engine = trainer.engine();
      trainer.step();
      trainer.step();
      std::int64_t padding = 0;
      for (const UnitId unit : trainer.units()) {
        for (const Segment& segment : EngineParts::of(engine).unit_at(unit.index).segments) {
          if (!segment.shard_away) continue;
          std::vector<std::byte> bytes = bytes_of(engine, segment.shard);
          const std::int64_t size = size_of(segment.shard.dtype());
          for (const Placement& placement : segment.layout.placements()) {
            const auto begin = bytes.begin() + placement.begin * size;
            EXPECT_NE(std::count(begin, begin + placement.count * size, std::byte{0}),
                      placement.count * size);
            std::fill(begin, begin + placement.count * size, std::byte{0});
          }
          EXPECT_EQ(std::ranges::count(bytes, std::byte{0}), std::ssize(bytes)) << unit.index;
          padding += segment.layout.padding();
        }
      }
      EXPECT_GT(padding, 0);
    });
  }
}

// The time that compute waits for the disk is not that of communication: here no state is in the
// file, and only frozen parameters are.
TEST(ShardsInAFile, TakeTimeThatIsCountedAsThatOfTiers) {
  plain::Setup setup{plain::options(3, DType::bf16),
                     {{"a", {{"weight", {200, 100}, init::normal(1.0F), false}}},
                      {"b", {{"weight", {200, 100}, init::normal(1.0F), false}}},
                      {"head", {{"weight", {29}, init::normal(1.0F)}}}}};
  setup.engine.limits.persistence_threshold = 30;
  setup.engine.limits.prefetch_elements = 0;
  setup = with_shards_in_file(setup, Tier::device, 1);
  setup.states_disk = slow_disk;
  plain::run(1, setup, [](plain::Trainer& trainer, Communicator&) {
    for (int i = 0; i < 3; ++i) {
      const StepReport report = trainer.step();
      EXPECT_GT(report.tier_seconds, 0);
      EXPECT_GE(report.exposed_seconds, -1e-9);
    }
  });
}

TEST(ShardsInAFile, ThatDifferBetweenReplicasAreFound) {
  std::vector<std::string> errors(2);
  plain::run(
      2, with_shards_in_file(frozen_setup({2, 1, 1}, DType::bf16, MomentFormat::fp32)),
      [&](plain::Trainer& trainer, Communicator& communicator) {
        EngineStates& states = trainer.engine().states();
        trainer.step();
        states.check_replicas();
        EngineCore::Sealed& parts = EngineParts::of(trainer.engine()).parts();
        const Segment& still =
            EngineParts::of(trainer.engine()).unit_at(trainer.units().back().index).segments[0];
        std::vector<float> value{7};
        if (communicator.rank() == 1)
          parts.access.set(still.shard.slice(5000, 1), View::of(std::span(value)));
        errors[static_cast<std::size_t>(communicator.rank())] =
            error_of([&] { states.check_replicas(); });
      });
  EXPECT_THAT(errors, Each(HasSubstr("compute copies of \"still.weight\" on rank 1 differ from "
                                     "those on rank 0")));
}

TEST(ShardsInAFile, AreNotHeldInMemory) {
  const auto named = [](std::string_view what) {
    return Field(&LiveTensor::what, ::testing::Eq(what));
  };
  for (const DType compute : {DType::fp32, DType::bf16}) {
    plain::run(
        2, with_shards_in_file(frozen_setup({1, 2, 1}, compute, MomentFormat::fp32), Tier::device),
        [&](plain::Trainer& trainer, Communicator&) {
          EngineStates& states = trainer.engine().states();
          EXPECT_THAT(error_of([&] { states.held(StateKind::parameter); }),
                      HasSubstr("in a file, not in memory; use read() and write()"));
          EXPECT_FALSE(states.held(StateKind::moment0).empty());
          std::vector<LiveTensor> live = trainer.engine().live_tensors();
          std::erase_if(live, [](const LiveTensor& of) { return of.unit == "single"; });
          EXPECT_THAT(live, Not(Contains(named("parameters"))));  // but those of a whole unit
          EXPECT_THAT(live, Contains(named("small parameters")));
        });
  }
}

/// Bytes of the shards that a rank has in the file, with fp32 moments: all but those of units that
/// stay whole.
std::int64_t shard_bytes(const plain::Setup& setup, int world) {
  std::int64_t sum = 0;
  for (const plain::UnitSpec& unit : setup.units) {
    for (const bool trainable : {true, false}) {
      std::vector<ParameterSpec> chosen;
      for (const ParameterSpec& spec : unit.parameters) {
        if (spec.trainable == trainable) chosen.push_back(spec);
      }
      const FlatLayout layout(chosen, world, *setup.engine.limits.persistence_threshold);
      if (layout.tail_begin() > 0)
        sum += round_up(layout.shard() * size_of(setup.engine.compute), TierFile::kBlock);
    }
  }
  return sum;
}

TEST(ShardsInAFile, AndTheirSlotsTakeThePlanToTheByte) {
  for (const auto& [compute, optimizer, buffers] :
       cases_of({DType::bf16, DType::fp32}, {Tier::file, Tier::device}, {2, 1, 50})) {
    const plain::Setup setup = with_shards_in_file(
        frozen_setup({1, 3, 1}, compute, MomentFormat::fp32), optimizer, buffers);
    plain::Setup one = setup;
    one.engine.tiers.fetch_buffers = 1;
    plain::run(
        3, setup,
        [&, e = size_of(compute), in_file = optimizer == Tier::file,
         of_each = std::min(buffers, 6)](plain::Trainer& trainer, Communicator& communicator) {
          Device& device = trainer.engine().device();
          const std::int64_t allocations = device.ledger().allocations();
          trainer.step();
          static_cast<void>(leased_values(trainer));
          EXPECT_EQ(device.ledger().allocations(), allocations);
          const auto ranks = planning::communicator(communicator.rank(), 3, BackendKind::local);
          const auto plan = planning::open();
          const plain::Trainer planned(*ranks, *plan, setup);
          const MemorySnapshot real = device.ledger().snapshot();
          EXPECT_EQ(real.current, plan->ledger().snapshot().current);
          EXPECT_EQ(real.peak, plan->ledger().snapshot().peak);
          const MemorySnapshot file = device.file_ledger().snapshot();
          EXPECT_EQ(file.current, plan->file_ledger().snapshot().current);
          EXPECT_EQ(file.current_of(MemoryClass::parameters), shard_bytes(setup, 3));
          EXPECT_EQ(file.current_of(MemoryClass::optimizer) > 0, in_file);
          const auto with_one = planning::open();
          const plain::Trainer least(*ranks, *with_one, one);
          const std::int64_t slots = real.current_of(MemoryClass::staging) -
                                     with_one->ledger().snapshot().current_of(MemoryClass::staging);
          // Each of the longest share, that of "wide" and its frozen part; one a unit is enough.
          const std::int64_t slot =
              round_up(4352 * e, TierFile::kBlock) + round_up(64 * e, TierFile::kBlock);
          EXPECT_EQ(slots, (of_each - 1) * slot);
        });
  }
}

// A unit that is larger than what may stay in memory keeps no other from it.
TEST(ShardsInAFile, AreOfAllUnitsButThoseThatFitIntoMemory) {
  constexpr std::int64_t kRow = 4096;  // elements
  const auto rows_in_file = [](std::int64_t in_memory, std::int64_t small = 0) {
    const auto device = planning::open();
    const auto ranks = planning::communicator(0, 2, BackendKind::local);
    EngineOptions options = plain::options(3, DType::bf16);
    options.limits.persistence_threshold = small;
    options.tiers = with_shards(small_windows("/folder"), Tier::device);
    options.tiers.parameters_in_memory = in_memory;
    Engine engine(*ranks, *device, options);
    engine.add_unit("embedding", {{"weight", {12, kRow}}});
    engine.add_unit("small", {{"weight", {2, kRow}, init::zeros(), false}});
    engine.add_unit("large", {{"weight", {6, kRow}}});
    engine.seal();
    return device->file_ledger().snapshot().total / (kRow * 2);
  };
  EXPECT_EQ(rows_in_file(0), 10);
  EXPECT_EQ(rows_in_file(kRow - 1), 10);
  EXPECT_EQ(rows_in_file(kRow), 9);
  EXPECT_EQ(rows_in_file(3 * kRow), 9);
  EXPECT_EQ(rows_in_file(4 * kRow), 6);
  EXPECT_EQ(rows_in_file(6 * kRow), 4);
  EXPECT_EQ(rows_in_file(10 * kRow), 0);
  EXPECT_EQ(rows_in_file(std::int64_t{1} << 60), 0);
  EXPECT_EQ(rows_in_file(0, 3 * kRow), 9);  // small ones stay whole
}

TEST(ShardsInAFile, ThatFitIntoMemoryChangeNoBit) {
  const plain::Setup memory = frozen_setup({1, 2, 1}, DType::bf16, MomentFormat::fp32);
  const std::uint64_t expected = plain::train(2, memory, 3);
  for (const std::int64_t elements : {300, 3'000, 1'000'000}) {
    plain::Setup setup = with_shards_in_file(memory);
    setup.engine.tiers.parameters_in_memory = elements;
    EXPECT_EQ(plain::train(2, setup, 3), expected) << elements;
  }
}

// Units that stay whole are chosen by the bytes of memory: a shard in the file takes none.
TEST(ShardsInAFile, LetFewerUnitsStayWhole) {
  const auto kept = [](Tier parameters) {
    const auto device = planning::open();
    const auto ranks = planning::communicator(0, 1, BackendKind::local);
    EngineOptions options = plain::options(3, DType::bf16);
    options.limits = {};
    options.tiers = with_shards(small_windows("/folder"), Tier::device);
    options.tiers.parameters = parameters;
    Engine engine(*ranks, *device, options);
    for (int i = 0; i < 8; ++i)
      engine.add_unit(fmt::format("layer.{}", i), {{"weight", {512, 1024}}});
    engine.seal();
    return device->ledger().snapshot().current_of(MemoryClass::parameters);
  };
  EXPECT_EQ(kept(Tier::device), std::int64_t{8} * 512 * 1024 * 2);
  EXPECT_EQ(kept(Tier::file), 0);
}

TEST(TierOptions, OfParametersOutOfRangeAreNamed) {
  const auto error = [](const std::function<void(EngineOptions&)>& change) {
    EngineOptions options;
    options.tiers = with_shards(small_windows("/folder"), Tier::device);
    change(options);
    return error_of([&] { validate(options); });
  };
  EXPECT_EQ(error([](EngineOptions&) {}), "no error");
  EXPECT_THAT(error([](EngineOptions& of) { of.tiers.fetch_buffers = 0; }),
              HasSubstr("fetched through 0 buffers, expected 1 or more"));
  EXPECT_THAT(error([](EngineOptions& of) { of.tiers.parameters_in_memory = -1; }),
              HasSubstr("-1 elements of shards of parameters stay in memory, expected 0 or more"));
  EXPECT_THAT(error([](EngineOptions& of) { of.tiers.file.folder.clear(); }),
              HasSubstr("no folder"));
  for (const int stage : {0, 1, 2}) {
    EXPECT_THAT(
        error([&](EngineOptions& of) { of.stage = stage; }),
        HasSubstr(fmt::format("in a file, as only shards of them can; stage is {}, expected "
                              "3",
                              stage)));
    EXPECT_THAT(
        error([&](EngineOptions& of) {
          of.stage = stage;
          of.tiers.parameters = Tier::host;
        }),
        HasSubstr(fmt::format("in host memory, as only shards of them can; stage is {}", stage)));
  }
}

TEST(TierOptions, OfParametersMustBeEqualOnAllRanks) {
  for (const Tier others : {Tier::device, Tier::file}) {
    std::vector<std::string> errors(2);
    local::run(2, [&](Communicator& communicator) {
      const auto device = cpu::open();
      EngineOptions options;
      options.tiers = with_shards(small_windows("/folder"));
      if (communicator.rank() == 1) {
        options.tiers.parameters = others;
        options.tiers.fetch_buffers = 3;
      }
      Engine engine(communicator, *device, options);
      engine.add_unit("unit", {{"weight", {100}}});
      errors[static_cast<std::size_t>(communicator.rank())] = error_of([&] { engine.seal(); });
    });
    EXPECT_THAT(errors, Each(HasSubstr("parameters in a file")));
  }
}

}  // namespace
}  // namespace zero::testing
