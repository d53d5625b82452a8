// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "inference/block_windows.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kDiskBlock = TierFile::kBlock;
using Bytes = std::vector<std::uint8_t>;

/// Different for every block and place.
Bytes content_of(std::int64_t block, std::int64_t count) {
  Bytes bytes(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(17 * (block + 1) + static_cast<std::int64_t>(i) * 7 +
                                         static_cast<std::int64_t>(i) / 4096);
  }
  return bytes;
}

/// A file in which all blocks are stored.
std::unique_ptr<BlockFile> stored(Device& device, const TierFileOptions& options,
                                  const BlockFile::Size& size) {
  auto file = std::make_unique<BlockFile>(device, options, size);
  file->open();
  for (std::int64_t i = 0; i < size.blocks; ++i) {
    file->store(i, [&](const View& shard) {
      std::ranges::copy(content_of(i, size.bytes), shard.as<std::uint8_t>().begin());
    });
  }
  file->finish_storing();
  return file;
}

/// What work of the compute stream sees of each block in so many passes.
std::deque<Bytes> used(Device& device, BlockFile& file, const BlockFile::Size& size, int passes) {
  std::deque<Bytes> found;
  for (std::int64_t use = 0; use < passes * size.blocks; ++use) {
    const View shard = file.use(use % size.blocks, device.compute());
    Bytes& to = found.emplace_back();
    device.compute().submit("use of a block", [shard, &to] {
      const auto seen = shard.as<const std::uint8_t>();
      to.assign(seen.begin(), seen.end());
    });
    file.release(device.compute());
  }
  file.fetch();
  device.compute().synchronize();
  return found;
}

using Opened = std::function<std::unique_ptr<Device>(unsigned seed)>;

class BlockFiles : public ::testing::TestWithParam<std::pair<const char*, Opened>> {
 protected:
  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(
    OnEachDevice, BlockFiles,
    ::testing::Values(
        std::pair<const char*, Opened>{"cpu", [](unsigned /*seed*/) { return cpu::open(); }},
        std::pair<const char*, Opened>{
            "lazy",
            [](unsigned /*seed*/) { return testing::open({.policy = StreamOrder::Policy::lazy}); }},
        std::pair<const char*, Opened>{"seeded",
                                       [](unsigned seed) {
                                         return testing::open(
                                             {.policy = StreamOrder::Policy::seeded, .seed = seed});
                                       }}),
    [](const auto& each) { return std::string(each.param.first); });

// A slot that is filled before its user is done, and a wrong block behind the last one, show.
TEST_P(BlockFiles, GiveEachBlockInOrderPassAfterPass) {
  unsigned seed = 0;
  for (const std::int64_t bytes : {std::int64_t{1}, kDiskBlock, 3 * kDiskBlock + 5}) {
    for (const std::int64_t slots : {1, 2, 3, 9}) {
      const BlockFile::Size size{.blocks = 4, .bytes = bytes, .slots = slots};
      const auto device = GetParam().second(++seed);
      const auto file = stored(
          *device, {.folder = scratch_.path(), .block_bytes = kDiskBlock, .queue = {.depth = 3}},
          size);
      const std::deque<Bytes> found = used(*device, *file, size, 3);
      for (std::size_t use = 0; use < found.size(); ++use) {
        ASSERT_EQ(found[use], content_of(static_cast<std::int64_t>(use) % size.blocks, bytes))
            << "use " << use << ", " << bytes << " bytes, " << slots << " slots";
      }
      EXPECT_EQ(file->failure(), "");
    }
  }
  EXPECT_THAT(scratch_.names(), IsEmpty());
}

TEST_P(BlockFiles, TellWhatWasRead) {
  const BlockFile::Size size{.blocks = 4, .bytes = kDiskBlock + 1, .slots = 3};
  const auto device = GetParam().second(7);
  const auto file = stored(*device, {.folder = scratch_.path()}, size);
  EXPECT_EQ(file->reads().pass_bytes, 4 * 2 * kDiskBlock);
  EXPECT_EQ(file->reads().bytes, 0);
  used(*device, *file, size, 2);
  device->transfer().synchronize();
  EXPECT_EQ(file->reads().bytes, (2 * 4 + 3) * 2 * kDiskBlock) << "three are read ahead";
  EXPECT_GT(file->reads().seconds, 0);
}

TEST(BlockFile, IsUsedInOrder) {
  const Scratch scratch;
  const auto device = cpu::open();
  const auto file = stored(*device, {.folder = scratch.path()}, {.blocks = 3, .bytes = 10});
  EXPECT_THAT(error_of([&] { file->use(1, device->compute()); }),
              HasSubstr("block 1 is used; expected block 0, the next in order"));
}

TEST(BlockFile, TakesWhatIsPlanned) {
  const Scratch scratch;
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{5}, 2 * kDiskBlock}) {
    const BlockFile::Size size{.blocks = 5, .bytes = bytes, .slots = 2};
    const auto device = cpu::open();
    const auto planning = planning::open();
    const auto real = stored(*device, {.folder = scratch.path()}, size);
    BlockFile planned(*planning, {.folder = "/nowhere"}, size);
    planned.open();
    EXPECT_EQ(planning->ledger().snapshot().labels, device->ledger().snapshot().labels);
    EXPECT_EQ(planning->file_ledger().snapshot().labels, device->file_ledger().snapshot().labels);
    const std::int64_t each = round_up(bytes, kDiskBlock);
    EXPECT_EQ(device->file_ledger().snapshot().total, 5 * each);
    EXPECT_EQ(device->ledger().snapshot().total, bytes == 0 ? 0 : 2 * each + kDiskBlock);
    EXPECT_EQ(used(*device, *real, size, 2).back(), content_of(4, bytes));
  }
}

TEST(BlockFile, OfNothingIsNoFile) {
  Faults none("");
  HookedDisk disk(std::ref(none));
  const Scratch scratch;
  const auto device = cpu::open();
  const BlockFile::Size size{.blocks = 2, .bytes = 0};
  const auto file = stored(*device, {.folder = scratch.path(), .disk = &disk}, size);
  used(*device, *file, size, 2);
  EXPECT_THAT(none.calls(), IsEmpty());
}

TEST(BlockFile, IsForDevicesThatComputeInHostMemory) {
  const auto device = planning::open(1, MemorySpace::device);
  EXPECT_THAT(error_of([&] { BlockFile(*device, {.folder = "/nvme"}, {.blocks = 2, .bytes = 5}); }),
              HasSubstr("blocks of weights in a file are read into host memory"));
}

TEST(BlockFile, KnowsAllFailuresOfItsDiskOnceAllIsStored) {
  for (const int block : {0, 1, 2}) {
    Faults faults("disk on fire");
    faults.fail_at("queue write", block);
    HookedDisk disk(std::ref(faults));
    const Scratch scratch;
    const auto device = testing::open({.policy = StreamOrder::Policy::lazy});
    const auto file = stored(*device, {.folder = scratch.path(), .disk = &disk},
                             {.blocks = 3, .bytes = kDiskBlock});
    EXPECT_THAT(file->failure(), HasSubstr("disk on fire")) << block;
  }
}

TEST(BlockFile, KeepsAFailureOfItsDisk) {
  for (const auto& [call, number] : {std::pair("queue write", 2), std::pair("queue read", 5)}) {
    Faults faults("disk on fire");
    faults.fail_at(call, number);
    HookedDisk disk(std::ref(faults));
    const Scratch scratch;
    const auto device = cpu::open();
    const BlockFile::Size size{.blocks = 3, .bytes = kDiskBlock};
    const auto file = stored(*device, {.folder = scratch.path(), .disk = &disk}, size);
    used(*device, *file, size, 3);
    EXPECT_THAT(file->failure(), HasSubstr(fmt::format("cannot {}: disk on fire", call)));
    EXPECT_THAT(scratch.names(), IsEmpty());
  }
}

}  // namespace
}  // namespace zero::testing
