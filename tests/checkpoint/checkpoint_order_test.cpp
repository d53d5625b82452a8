// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Saves beside training in any order of streams, and the memory that they take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_saver.h"
#include "checkpoint/checkpointer.h"
#include "collectives/backends.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/support/test_device.h"

namespace zero {

/// What a Checkpointer is made of.
class CheckpointerParts {
 public:
  static CheckpointSaver& saver(Checkpointer& of) { return *of.saver_; }
};

}  // namespace zero

namespace zero::testing {
namespace {

using ::testing::Each;
using ::testing::Field;

using Files = std::map<std::string, std::string>;

struct Outcome {
  std::uint64_t hash = 0;
  Files files;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Saves beside the second step, and, with two saves, behind it at once.
Outcome outcome_of(SavedRun with) {
  Scratch scratch;
  with.checkpoints.folder = scratch.path("run");
  if (with.save_after.empty()) with.save_after = {1, 2};
  const RunResult result = run(with);
  EXPECT_THAT(result.reports, Each(Field(&SaveReport::error, "")));
  return {result.hash, contents(scratch.path("run"))};
}

/// Whether some order gives other files or bits than plain streams, or an error.
bool noticed(const SavedRun& with, const Outcome& expected, std::uint64_t seeds) {
  for (const StreamOrder& order : stream_orders(seeds)) {
    SavedRun ordered = with;
    ordered.job.order = order;
    try {
      if (outcome_of(ordered) != expected) return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

TEST(CheckpointOrder, FilesAndBitsAreTheSameInEveryOrder) {
  for (const int stage : {0, 1, 3}) {
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const SavedRun small = run_of(2, stage, "", compute);
      EXPECT_FALSE(noticed(small, outcome_of(small), 6)) << stage << " " << name_of(compute);
    }
  }
}

/// Few large tensors: a round is a few pieces of work, so that streams can be rounds apart.
SavedRun large() {
  SavedRun with = large_run_of(2, 3, "");
  with.job.shape.layers = 7;
  with.job.shape.width = 500;
  with.job.accumulation_steps = 1;
  with.last = 2;
  return with;
}

TEST(CheckpointOrder, FilesOfManyBlocksAreTheSameInEveryOrder) {
  EXPECT_FALSE(noticed(large(), outcome_of(large()), 3));
}

/// A save of the initial states, at once; no files if it failed.
Files saved_at_once(const std::optional<StreamOrder>& order, std::optional<WriteWait> skipped) {
  Scratch scratch;
  SavedRun with = large();
  with.job.order = order;
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator&) {
    engine.device().compute().synchronize();
    engine.device().communication().synchronize();
    Checkpointer checkpointer(engine, {.folder = scratch.path("run")});
    CheckpointerParts::saver(checkpointer).writer().skip(skipped);
    checkpointer.save({});
    checkpointer.wait();
    const SaveReport report = *checkpointer.report();
    // Memory that nothing has written yet may hold NaN, which no save takes: noticed too.
    if (!skipped) {
      EXPECT_EQ(report.error, "");
    }
  });
  return contents(scratch.path("run"));
}

class EachWriteWait : public ::testing::TestWithParam<WriteWait> {};

TEST_P(EachWriteWait, IsNoticedWhenLeftOut) {
  const Files expected = saved_at_once({}, {});
  ASSERT_FALSE(expected.empty());
  bool noticed = false;
  for (const StreamOrder& order : stream_orders(40)) {
    noticed = noticed || saved_at_once(order, GetParam()) != expected;
  }
  EXPECT_TRUE(noticed) << "wait " << static_cast<int>(GetParam())
                       << " was left out and no stream order noticed";
}

INSTANTIATE_TEST_SUITE_P(CheckpointOrder, EachWriteWait,
                         ::testing::Values(WriteWait::sent_before_pack,
                                           WriteWait::pack_before_exchange,
                                           WriteWait::placed_before_exchange,
                                           WriteWait::exchange_before_place));

TEST(CheckpointOrder, UpdatesWaitForTheReadsOfTheirSaveWhichIsNoticedIfLeftOut) {
  SavedRun with = large();
  with.save_after = {1};
  with.last = 3;
  const Outcome expected = outcome_of(with);
  EXPECT_FALSE(noticed(with, expected, 2));
  with.job.skipped = WaitSite::read_before_update;
  EXPECT_TRUE(noticed(with, expected, 6));
}

using Labels = std::map<std::string, std::int64_t>;

/// The growth of the ledger by a Checkpointer, and the peak of staging with a load.
struct Taken {
  Labels growth;
  std::int64_t peak = 0;
  friend bool operator==(const Taken&, const Taken&) = default;
};

Taken memory_of(Engine& engine, const std::string& folder) {
  Device& device = engine.device();
  const Labels before = device.ledger().snapshot().labels;
  Checkpointer checkpointer(engine, {.folder = folder});
  Labels growth = device.ledger().snapshot().labels;
  for (const auto& [label, bytes] : before) growth[label] -= bytes;
  std::erase_if(growth, [](const auto& entry) { return entry.second == 0; });
  checkpointer.load("auto");
  return {growth, device.ledger().snapshot().peak_of(MemoryClass::staging)};
}

TEST(CheckpointOrder, MemoryIsAsPlannedAndDoesNotGrowWithTheModel) {
  Scratch scratch;
  std::int64_t most = 0;
  for (const int layers : {1, 45, 300}) {
    SavedRun with = large_run_of(2, 3, scratch.path(std::to_string(layers)));
    with.job.shape.layers = layers;
    with.save_after = {1};
    with.last = 1;
    run(with);
    std::optional<Taken> used;
    toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
      const Taken mine = memory_of(engine, with.checkpoints.folder);
      if (communicator.rank() == 0) used = mine;
    });
    const auto communicator = planning::communicator(0, 2, BackendKind::local);
    const auto device = planning::open();
    Mesh mesh(*communicator, {});
    Engine engine(mesh, *device, with.job.engine);
    const toy::Model model(engine, with.job.shape);
    engine.seal({.order = model.order(), .accumulation_steps = with.job.accumulation_steps});
    const Taken planned = memory_of(engine, with.checkpoints.folder);
    EXPECT_EQ(used->growth, planned.growth) << layers;
    EXPECT_EQ(used->peak, planned.peak) << layers;
    std::int64_t sum = 0;
    for (const auto& [label, bytes] : planned.growth) sum += bytes;
    EXPECT_LE(sum, (std::int64_t{44} << 20) + 1000);
    EXPECT_GE(sum, most);
    most = sum;
  }
  EXPECT_GE(most, std::int64_t{44} << 20);
}

}  // namespace
}  // namespace zero::testing
