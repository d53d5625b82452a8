// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "checkpoint/block_writer.h"
#include "checkpoint/checkpoint_loader.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::Le;

constexpr int kHostRanks = 3;

TEST(HostBlocks, ReadOnceWhatARankOfTheHostNeedsAndNothingElse) {
  Scratch scratch;
  SavedRun with = large_run_of(kHostRanks, 3, scratch.path("run"));
  with.job.accumulation_steps = 3;
  with.checkpoints.file_bytes = 2'000'000;  // many files
  with.save_after = {1};
  with.last = 1;
  run(with);
  const std::string folder = scratch.path("run/step_00000001");
  std::mutex mutex;
  std::barrier all_ranks(kHostRanks);
  int reads = 0;
  int most_open = 0;
  HookedDisk disk([&](const std::string& call, const std::string&) {
    const std::lock_guard lock(mutex);
    reads += call == "queue read" ? 1 : 0;
    most_open = std::max(most_open, open_files_below(folder));
  });
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    CheckpointReader reader(disk, folder);
    const std::int64_t all = reader.blocks().count();
    EXPECT_GT(all, 20);
    all_ranks.arrive_and_wait();
    {
      const std::lock_guard lock(mutex);
      reads = most_open = 0;
    }
    all_ranks.arrive_and_wait();
    HostBlocks blocks(communicator, engine.device(), disk, all);
    const auto needs = [&](std::int64_t number) {  // rank 2 needs nothing, blocks 3n + 2 nobody
      return communicator.rank() < 2 && (number % 3 == communicator.rank() || number == 0);
    };
    std::vector<std::int64_t> used;
    const CheckpointFailure failure =
        blocks.read(reader, needs, [&](std::int64_t number, std::span<std::byte> bytes) {
          reader.check_block(number, bytes);
          used.push_back(number);
        });
    EXPECT_EQ(failure.why, "");
    std::vector<std::int64_t> expected;
    for (std::int64_t number = 0; number < all; ++number) {
      if (needs(number)) expected.push_back(number);
    }
    EXPECT_THAT(used, ElementsAreArray(expected));
    all_ranks.arrive_and_wait();
    const std::lock_guard lock(mutex);
    EXPECT_EQ(reads, (all + 2) / 3 + (all + 1) / 3);
    EXPECT_THAT(most_open, Le(kHostRanks * 8)) << "of some dozens of files";
    EXPECT_EQ(open_files_below(folder), 0);
  });
}

TEST(HostBlocks, StayWhileARankUsesThem) {
  Scratch scratch;
  SavedRun with = large_run_of(2, 3, scratch.path("run"));
  with.save_after = {1};
  with.last = 1;
  run(with);
  std::atomic<int> reads{0};  // of rank 0
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    const bool first = communicator.rank() == 0;
    HookedDisk disk([&](const std::string& call, const std::string&) {
      if (first && call == "queue read") ++reads;
    });
    disk.transfer_at_once();
    CheckpointReader reader(disk, scratch.path("run/step_00000001"));
    HostBlocks blocks(communicator, engine.device(), disk, 2);  // each rank reads one in a round
    int used = 0;
    const CheckpointFailure failure = blocks.read(
        reader, [](std::int64_t) { return true; },
        [&](std::int64_t number, std::span<std::byte> bytes) {
          // Time for rank 0 to read blocks of round 3 into the memory of round 1.
          for (int i = 0; !first && number == 2 && i < 50 && reads < 4; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          reader.check_block(number, bytes);
          ++used;
        });
    EXPECT_EQ(failure.why, "");
    EXPECT_EQ(used, reader.blocks().count());
  });
}

TEST(HostBlocks, ARankKeepsWhatItsShardsHoldAtStage3) {
  const SavedRun with = run_of(2, 3, "");
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator&) {
    for (const LogicalTensor& tensor : engine.states().tensors(StateKind::moment0)) {
      std::int64_t kept = 0;
      const std::int64_t count = std::accumulate(tensor.shape.begin(), tensor.shape.end(),
                                                 std::int64_t{1}, std::multiplies<>());
      for (std::int64_t i = 0; i < count; ++i) kept += engine.states().keeps(tensor, i, 1) ? 1 : 0;
      std::int64_t held = 0;
      for (const StateRun& each : engine.states().runs(tensor)) {
        held += each.count;
        EXPECT_TRUE(engine.states().keeps(tensor, each.begin, each.count));
      }
      EXPECT_EQ(kept, held) << tensor.name;
      EXPECT_FALSE(engine.states().keeps(tensor, 0, 0));
    }
  });
}

TEST(BackgroundQueue, RunsWorkInOrderAndEndsWithoutWork) {
  std::vector<int> done;
  BackgroundQueue side;
  side.join();
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) side.add([&done, i] { done.push_back(i); });
    if (round % 2 == 0) side.join();
  }
  side.join();
  ASSERT_EQ(done.size(), 150U);
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], static_cast<int>(i % 3));
}

}  // namespace
}  // namespace zero::testing
