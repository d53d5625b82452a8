// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Where a file tier has its ranges, and what it refuses.
#include "tiers/tier_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero {
namespace {

using testing::Faults;
using ::testing::HasSubstr;
using testing::HookedDisk;
using testing::Scratch;

constexpr std::int64_t kBlock = TierFile::kBlock;
constexpr std::int64_t kGrain = std::int64_t{1} << 18;

std::int64_t address(const View& view) {
  return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(view.data()));
}

TEST(TierFile, GivesRangesWholeBlocksAndAddressesOfTheirOwn) {
  const auto device = cpu::open();
  TierFile file(*device, {.folder = "/none"});
  std::int64_t end = 0;
  std::int64_t bytes = 0;
  for (const std::int64_t count :
       {std::int64_t{1}, std::int64_t{63}, std::int64_t{1024}, std::int64_t{1025}, kGrain - 1,
        kGrain, kGrain + 1, std::int64_t{1} << 40}) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::u8}) {
      const View view = file.reserve(count, dtype, MemoryClass::optimizer, "h.0.master");
      EXPECT_EQ(view.count(), count);
      EXPECT_EQ(view.dtype(), dtype);
      EXPECT_EQ(view.device(), device.get());
      EXPECT_EQ(address(view) % kBlock, 0);
      EXPECT_GE(address(view), end);
      end = address(view) + view.bytes();
      bytes += round_up(view.bytes(), kBlock);
      EXPECT_EQ(file.bytes(), bytes);
      EXPECT_TRUE(file.holds(view));
      EXPECT_TRUE(file.holds(view.slice(count - 1, 1)));
      EXPECT_FALSE(file.holds(View(nullptr, 1, DType::u8, nullptr)));
    }
  }
  const std::vector<float> memory(4);
  EXPECT_FALSE(file.holds(View::of(std::span(memory))));
}

TEST(TierFile, ReservesNothingForNoElements) {
  const auto device = cpu::open();
  TierFile file(*device, {.folder = "/none"});
  const View none = file.reserve(0, DType::bf16, MemoryClass::optimizer, "scales");
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(none.dtype(), DType::bf16);
  EXPECT_EQ(none.device(), device.get());
  EXPECT_FALSE(file.holds(none));
  EXPECT_EQ(file.bytes(), 0);
  EXPECT_EQ(device->file_ledger().snapshot().total, 0);
}

TEST(TierFile, ChargesTheFileLedgerUntilItsEnd) {
  const auto device = cpu::open();
  {
    TierFile one(*device, {.folder = "/none"});
    TierFile two(*device, {.folder = "/none"});
    const View first = one.reserve(1025, DType::fp32, MemoryClass::optimizer, "h.0.master");
    const View second = two.reserve(10, DType::u8, MemoryClass::parameters, "h.0.shard");
    const View third = one.reserve(1, DType::fp32, MemoryClass::optimizer, "h.1.master");
    EXPECT_TRUE(one.holds(first) && one.holds(third) && two.holds(second));
    EXPECT_FALSE(one.holds(second) || two.holds(first) || two.holds(third));
    EXPECT_EQ(device->file_ledger().snapshot().labels,
              (std::map<std::string, std::int64_t>{{"optimizer/h.0.master", 2 * kBlock},
                                                   {"optimizer/h.1.master", kBlock},
                                                   {"parameters/h.0.shard", kBlock}}));
    EXPECT_EQ(device->ledger().snapshot().total, 0);
  }
  const MemorySnapshot end = device->file_ledger().snapshot();
  EXPECT_EQ(end.total, 0);
  EXPECT_EQ(end.peak_of(MemoryClass::optimizer), 3 * kBlock);
}

float load(const View& view, std::int64_t at) {
  const volatile float* const element = view.as<float>().data() + at;
  return *element;
}

TEST(TierFileDeathTest, AnAccessOfARangeFaults) {
  const auto device = cpu::open();
  TierFile file(*device, {.folder = "/none"});
  const View view = file.reserve(5000, DType::fp32, MemoryClass::optimizer, "master");
  EXPECT_DEATH(load(view, 0), "");
  EXPECT_DEATH(load(view, 4999), "");
}

TEST(WindowMemory, BeginsWithABlockAndHasWholeOnes) {
  const auto device = cpu::open();
  for (const std::int64_t bytes :
       {std::int64_t{1}, kBlock, 5 * kBlock + 1, std::int64_t{3} << 20}) {
    const WindowMemory memory(*device, bytes, "windows");
    EXPECT_EQ(address(memory.view()) % kBlock, 0);
    EXPECT_EQ(memory.view().bytes(), round_up(bytes, kBlock));
    EXPECT_EQ(memory.view().dtype(), DType::u8);
    EXPECT_EQ(memory.view().device(), nullptr);
    EXPECT_EQ(device->ledger().snapshot().current_of(MemoryClass::staging),
              round_up(bytes, kBlock) + kBlock);
  }
  EXPECT_TRUE(WindowMemory(*device, 0, "windows").view().empty());
  EXPECT_EQ(device->ledger().snapshot().total, 0);
  for (const std::int64_t bytes : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_THAT(error_of([&] { WindowMemory(*device, bytes, "windows"); }),
                HasSubstr("cannot allocate windows of"));
  }
}

/// A file that is open, of two ranges, and its windows.
struct Opened {
  explicit Opened(Device& device, const std::string& folder, files::FileSystem* disk = nullptr)
      : memory(device, 4 * kBlock, "windows"),
        file(device, {.folder = folder, .block_bytes = kBlock, .disk = disk}),
        master(file.reserve(1500, DType::fp32, MemoryClass::optimizer, "master")),
        moment(file.reserve(2048, DType::bf16, MemoryClass::optimizer, "moment")) {
    file.open(memory.view());
  }
  View window(std::int64_t count, DType dtype = DType::fp32) const {
    return memory.view().reinterpret(dtype, count);
  }

  WindowMemory memory;
  TierFile file;
  View master;  // a block and a half
  View moment;  // a block
};

TEST(TierFile, PlansWhatItUses) {
  const Scratch scratch;
  const auto use = [](Device& device, const std::string& folder) {
    Opened opened(device, folder);
    EXPECT_TRUE(opened.file.holds(opened.master));
    EXPECT_FALSE(opened.file.holds(opened.memory.view()));
    opened.file.finish(opened.file.start_write(opened.window(1500), opened.master));
    opened.file.finish(opened.file.start_read(opened.master, opened.window(1500)));
    EXPECT_EQ(opened.file.failure(), "");
    device.transfer().synchronize();
    return std::pair(device.ledger().snapshot().labels, device.file_ledger().snapshot().labels);
  };
  const auto device = cpu::open();
  const auto used = use(*device, scratch.path());
  EXPECT_EQ(use(*planning::open(), "/none"), used);
}

TEST(TierFile, LeavesNoName) {
  const Scratch scratch;
  const auto device = cpu::open();
  const Opened opened(*device, scratch.path());
  EXPECT_EQ(scratch.names(), std::vector<std::string>());
}

TEST(TierFile, ThatCannotBeMadeSaysWhyAndMayBeTriedAgain) {
  const Scratch scratch;
  const auto device = cpu::open();
  TierFile missing(*device, {.folder = scratch.path("none")});
  const WindowMemory memory(*device, kBlock, "windows");
  const View range = missing.reserve(100, DType::fp32, MemoryClass::optimizer, "master");
  const auto open = [&] { missing.open(memory.view()); };
  const std::string expected =
      scratch.path("none") + ": cannot make a file there: No such file or directory";
  EXPECT_EQ(error_of(open), expected);
  EXPECT_EQ(error_of(open), expected);
  EXPECT_THAT(error_of([&] { missing.start_read(range, memory.view()); }),
              HasSubstr("the file is not open"));

  Faults faults("No space left on device");
  faults.fail_at("create_scratch", 0);
  HookedDisk disk(std::ref(faults));
  TierFile full(*device, {.folder = scratch.path(), .disk = &disk});
  EXPECT_EQ(error_of([&] { full.open(memory.view()); }),
            scratch.path() + ": cannot create_scratch: No space left on device");
  full.open(memory.view());
  EXPECT_EQ(full.failure(), "");

  TierFile large(*device, {.folder = scratch.path()});
  large.reserve(kGrain, DType::fp32, MemoryClass::optimizer, "master");
  const testing::FileSizeLimit limit(kGrain);
  EXPECT_EQ(error_of([&] { large.open(memory.view()); }),
            scratch.path("(no name)") + ": cannot make room for 1048576 bytes: File too large");
}

TEST(TierFile, TellsTheBlocksAroundAView) {
  const auto device = cpu::open();
  TierFile file(*device, {.folder = "/none"});
  file.reserve(1, DType::u8, MemoryClass::optimizer, "before");
  const View range = file.reserve(10 * kBlock + 4, DType::u8, MemoryClass::optimizer, "master");
  file.reserve(1, DType::u8, MemoryClass::optimizer, "behind");
  const auto around = [&](std::int64_t begin, std::int64_t count, std::int64_t grain) {
    const View found = file.around(range.slice(begin, count), grain);
    EXPECT_EQ(found.dtype(), DType::u8);
    return std::pair((address(found) - address(range)) / kBlock, found.bytes() / kBlock);
  };
  using Blocks = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(around(0, 1, kBlock), Blocks(0, 1));
  EXPECT_EQ(around(kBlock - 1, 2, kBlock), Blocks(0, 2));
  EXPECT_EQ(around(kBlock, kBlock, kBlock), Blocks(1, 1));
  EXPECT_EQ(around(10 * kBlock, 4, kBlock), Blocks(10, 1));
  EXPECT_EQ(around(5 * kBlock, 1, 4 * kBlock), Blocks(4, 4));
  EXPECT_EQ(around(7 * kBlock, 2 * kBlock, 4 * kBlock), Blocks(4, 7));
  EXPECT_EQ(around(1, 1, std::numeric_limits<std::int64_t>::max() / kBlock * kBlock),
            Blocks(0, 11));
  EXPECT_EQ(error_of([&] { file.around(range, 100); }),
            "tiers: a grain of 100 bytes, expected multiples of 4096");
  EXPECT_EQ(error_of([&] { file.around(View(nullptr, 3, DType::u8, nullptr)); }),
            "tiers: /none: a view of 3 x u8 is in no range of the file");
}

TEST(TierFile, RefusesRangesThatNoFileHas) {
  const auto device = cpu::open();
  TierFile file(*device, {.folder = "/none"});
  const auto reserve = [&](std::int64_t count, DType dtype) {
    return error_of([&] { file.reserve(count, dtype, MemoryClass::optimizer, "master"); });
  };
  EXPECT_EQ(reserve(-1, DType::u8), "tiers: cannot reserve -1 elements for \"master\"");
  EXPECT_EQ(reserve(std::int64_t{1} << 62, DType::fp32),
            "size 4611686018427387904 x 4 does not fit 64 bits");
  EXPECT_EQ(reserve(std::numeric_limits<std::int64_t>::max(), DType::u8),
            "device cpu: cannot name 9223372036854775807 bytes of a file for \"master\"");
  EXPECT_EQ(file.bytes(), 0);
  EXPECT_EQ(reserve(std::int64_t{1} << 53, DType::u8), "no error");
  EXPECT_EQ(reserve((std::int64_t{1} << 53) + 1, DType::u8),
            "device cpu: cannot name 9007199254740993 bytes of a file for \"master\"");
  EXPECT_EQ(reserve(std::int64_t{1} << 53, DType::u8), "no error");
  EXPECT_EQ(reserve(1, DType::u8), "device cpu: cannot name 1 bytes of a file for \"master\"");
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{-4096}, std::int64_t{4097}}) {
    EXPECT_EQ(error_of([&] { TierFile(*device, {.folder = "/none", .block_bytes = bytes}); }),
              fmt::format("tiers: requests of {} bytes, expected a multiple of 4096", bytes));
  }
}

TEST(TierFile, RefusesTransfersOfOtherBytes) {
  const Scratch scratch;
  const auto device = cpu::open();
  Opened opened(*device, scratch.path());
  const std::string folder = scratch.path();
  TierFile& file = opened.file;
  const View& master = opened.master;
  const auto read = [&](const View& from, const View& to) {
    return error_of([&] { file.start_read(from, to); });
  };
  EXPECT_EQ(read(opened.window(4), opened.window(4)),
            "tiers: " + folder + ": a view of 4 x fp32 is in no range of the file");
  const View beyond(master.data(), 3000, DType::fp32, master.device());
  EXPECT_EQ(read(beyond, opened.window(3000)),
            "tiers: " + folder + ": a view of 3000 x fp32 is in no range of the file");
  EXPECT_EQ(read(master, opened.window(1499)),
            "tiers: " + folder +
                ": 6000 bytes of the file and 5996 bytes of a window are of no transfer");
  std::vector<float> elsewhere(1500);
  EXPECT_THAT(read(master, View::of(std::span(elsewhere))), HasSubstr("are not in the windows"));
  // The last block of the range has more bytes than the view.
  const View late = opened.window(4096).slice(4096 - 1500, 1500);
  EXPECT_EQ(read(master, late), "tiers: " + folder +
                                    ": 8192 bytes at byte 10384 are not in the windows, which have "
                                    "16384 bytes");
  EXPECT_EQ(error_of([&] { file.start_write(late, master); }), read(master, late));
  EXPECT_EQ(read(master.slice(0, 1499), late.slice(0, 1499)), "no error");
  EXPECT_EQ(read(master.slice(3, 0), View()), "no error");
  EXPECT_THAT(error_of([&] { file.finish(1000); }), HasSubstr("no transfer has ticket 1000"));
  EXPECT_THAT(error_of([&] { file.finish(0); }), HasSubstr("no transfer has ticket 0"));
  EXPECT_EQ(error_of([&] { file.reserve(1, DType::u8, MemoryClass::other, "late"); }),
            "tiers: \"late\" comes after the file was made");
  EXPECT_EQ(error_of([&] { file.open(opened.memory.view()); }),
            "tiers: " + folder + ": the file is open");

  TierFile another(*device, {.folder = folder});
  for (const View& windows : {opened.memory.view().slice(64, kBlock),
                              View(opened.memory.view().data(), kBlock, DType::u8, device.get())}) {
    EXPECT_EQ(error_of([&] { another.open(windows); }),
              "tiers: windows need host memory at a multiple of 4096 bytes");
  }
}

}  // namespace
}  // namespace zero
