// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What a file tier's transfers read and write, in which order, and how they fail.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/scratch.h"
#include "tests/support/test_device.h"
#include "tiers/tier_file.h"

namespace zero {
namespace {

using testing::HookedDisk;
using testing::MemoryFiles;
using testing::Scratch;
using testing::StreamOrder;

constexpr std::int64_t kBlock = TierFile::kBlock;
using Ticket = TierFile::Ticket;

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>(unsigned seed)> open;
};

class TierTransfers : public ::testing::TestWithParam<DeviceCase> {
 protected:
  std::unique_ptr<Device> open(unsigned seed = 1) const { return GetParam().open(seed); }
  Scratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(
    OnEachDevice, TierTransfers,
    ::testing::Values(DeviceCase{"cpu", [](unsigned /*seed*/) { return cpu::open(); }},
                      DeviceCase{"lazy",
                                 [](unsigned /*seed*/) {
                                   return testing::open({.policy = StreamOrder::Policy::lazy});
                                 }},
                      DeviceCase{"seeded",
                                 [](unsigned seed) {
                                   return testing::open(
                                       {.policy = StreamOrder::Policy::seeded, .seed = seed});
                                 }}),
    [](const auto& each) { return each.param.name; });

std::span<std::uint8_t> bytes_of(const View& view) {
  return view.reinterpret(DType::u8, view.bytes()).as<std::uint8_t>();
}

void fill(const View& view, std::uint8_t value) { std::ranges::fill(bytes_of(view), value); }

/// An open file of one range of bytes, and windows of as many each.
struct OneRange {
  OneRange(Device& of, std::int64_t count, int slots, const TierFileOptions& options)
      : device(of),
        each(round_up(count, kBlock)),
        memory(device, slots * each, "windows"),
        file(device, options),
        range(file.reserve(count, DType::u8, MemoryClass::optimizer, "master")) {
    file.open(memory.view());
  }
  View window(std::int64_t slot, std::int64_t begin, std::int64_t count) const {
    return memory.view().slice(slot * each + begin, count);
  }
  View window(std::int64_t slot) const { return window(slot, 0, range.count()); }
  void end(Ticket ticket) {
    file.finish(ticket);
    device.transfer().synchronize();
  }

  Device& device;
  std::int64_t each;
  WindowMemory memory;
  TierFile file;
  View range;
};

TEST_P(TierTransfers, BringZerosUntilSomethingIsWritten) {
  const auto device = open();
  OneRange tier(*device, 3 * kBlock + 5, 1, {.folder = scratch_.path()});
  fill(tier.window(0), 1);
  tier.end(tier.file.start_read(tier.range, tier.window(0)));
  EXPECT_TRUE(std::ranges::all_of(bytes_of(tier.window(0)), [](auto b) { return b == 0; }));
}

// Each transfer happens when it is waited for, and no sooner.
TEST_P(TierTransfers, ReadWhatWasWrittenBeforeThemThoughItIsInFlight) {
  const auto device = open();
  MemoryFiles disk;
  disk.make_folder("/nvme");
  disk.transfer_late();
  OneRange tier(*device, 4 * kBlock, 5, {.folder = "/nvme", .block_bytes = kBlock, .disk = &disk});
  for (int i = 0; i < 3; ++i) fill(tier.window(i), static_cast<std::uint8_t>(i + 1));
  const View middle = tier.range.slice(kBlock + 100, kBlock);
  const Ticket before = tier.file.start_read(middle, tier.window(3, 0, kBlock));
  const Ticket first = tier.file.start_write(tier.window(0), tier.range);
  const Ticket second = tier.file.start_write(tier.window(1, 0, kBlock), middle);
  const Ticket after = tier.file.start_read(tier.range, tier.window(4));
  const Ticket third = tier.file.start_write(tier.window(2), tier.range);
  for (const Ticket ticket : {after, third, second, first, before}) tier.end(ticket);

  EXPECT_TRUE(
      std::ranges::all_of(bytes_of(tier.window(3, 0, kBlock)), [](auto b) { return b == 0; }));
  const auto found = bytes_of(tier.window(4));
  for (std::int64_t i = 0; i < std::ssize(found); ++i) {
    const bool rewritten = i >= kBlock + 100 && i < 2 * kBlock + 100;
    ASSERT_EQ(found[static_cast<std::size_t>(i)], rewritten ? 2 : 1) << i;
  }
  tier.end(tier.file.start_read(tier.range, tier.window(0)));
  EXPECT_TRUE(std::ranges::all_of(bytes_of(tier.window(0)), [](auto b) { return b == 3; }));
  EXPECT_EQ(tier.file.failure(), "");
}

TEST_P(TierTransfers, OverlapUnlessTheyMeet) {
  for (const bool overlap : {true, false}) {
    const auto device = open();
    MemoryFiles disk;
    disk.make_folder("/nvme");
    disk.transfer_late();
    OneRange tier(
        *device, 4 * kBlock, 2,
        {.folder = "/nvme", .block_bytes = kBlock, .overlap_events = overlap, .disk = &disk});
    // Of a late disk, what is in flight has changed nothing.
    const auto writes = [&] {
      device->transfer().synchronize();
      return std::ranges::count_if(disk.changes(), [](const testing::Change& change) {
        return change.kind == testing::Change::Kind::write;
      });
    };
    const auto start = [&](int begin, int blocks) {
      return tier.file.start_write(tier.window(0, begin * kBlock, blocks * kBlock),
                                   tier.range.slice(begin * kBlock, blocks * kBlock));
    };
    const Ticket first = start(0, 2);
    EXPECT_EQ(writes(), 0);
    const Ticket second = start(2, 1);
    EXPECT_EQ(writes(), overlap ? 0 : 2);
    const Ticket third = start(1, 1);
    EXPECT_EQ(writes(), overlap ? 1 : 3);
    for (const Ticket ticket : {first, second, third}) tier.file.finish(ticket);
    EXPECT_EQ(writes(), 4);
  }
}

TEST_P(TierTransfers, MoveWholeBlocksAndEndRequestsAtMultiplesInTheFile) {
  const auto device = open();
  MemoryFiles disk;
  disk.make_folder("/nvme");
  const WindowMemory memory(*device, 4 * kBlock, "windows");
  TierFile file(*device, {.folder = "/nvme", .block_bytes = 2 * kBlock, .disk = &disk});
  file.reserve(1, DType::u8, MemoryClass::optimizer, "the block before");
  const View range = file.reserve(3 * kBlock + 5, DType::u8, MemoryClass::optimizer, "master");
  file.open(memory.view());
  for (const std::int64_t begin : {std::int64_t{0}, kBlock}) {
    const View part = range.slice(begin, range.count() - begin);
    file.finish(file.start_write(memory.view().slice(0, part.count()), part));
  }
  device->transfer().synchronize();
  std::vector<std::pair<std::int64_t, std::int64_t>> written;
  for (const testing::Change& change : disk.changes()) {
    if (change.kind != testing::Change::Kind::write) continue;
    written.emplace_back(change.offset / kBlock, std::ssize(change.data) / kBlock);
    EXPECT_EQ(change.offset % kBlock, 0);
    EXPECT_EQ(std::ssize(change.data) % kBlock, 0);
  }
  EXPECT_EQ(written, (std::vector<std::pair<std::int64_t, std::int64_t>>{
                         {1, 1}, {2, 2}, {4, 1}, {2, 2}, {4, 1}}));
}

/// A file tier beside the values that it must have.
class Modelled {
 public:
  static constexpr std::int64_t kSlot = 12 * kBlock;
  static constexpr int kSlots = 6;

  Modelled(Device& device, TierFileOptions options, std::mt19937& random)
      : device_(device),
        random_(random),
        memory_(device, kSlots * kSlot, "windows"),
        file_(device, std::move(options)),
        slots_(kSlots) {
    for (const auto& [count, dtype] : std::vector<std::pair<std::int64_t, DType>>{
             {10000, DType::fp32}, {1, DType::fp32}, {2048, DType::bf16}, {9000, DType::u8}}) {
      ranges_.push_back(file_.reserve(count, dtype, MemoryClass::optimizer, "range"));
      values_.emplace_back(static_cast<std::size_t>(ranges_.back().bytes()));
    }
    file_.open(memory_.view());
  }

  /// Starts a transfer of a random part of a range in a random window.
  void step() {
    const std::int64_t slot = draw(kSlots);
    end(slot);
    const auto r = static_cast<std::size_t>(draw(std::ssize(ranges_)));
    const View& range = ranges_[r];
    const std::int64_t unit = draw(2) == 0 ? 1 : kBlock / size_of(range.dtype());
    const std::int64_t begin = draw(range.count() + 1) / unit * unit;
    const std::int64_t last = std::min(
        begin + draw(range.count() - begin + 1) / unit * unit + (draw(4) == 0 ? range.count() : 0),
        range.count());
    move(slot, r, begin, last - begin, draw(2) == 0);
  }
  /// Ends all transfers, and reads everything.
  void check() {
    for (int slot = 0; slot < kSlots; ++slot) end(slot);
    for (std::size_t r = 0; r < ranges_.size(); ++r) {
      move(0, r, 0, ranges_[r].count(), false);
      end(0);
    }
    EXPECT_EQ(file_.failure(), "");
  }

 private:
  struct Slot {
    Ticket ticket = 0;  // 0: none
    View window;
    std::vector<std::uint8_t> expected;
  };

  std::int64_t draw(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  void move(std::int64_t slot, std::size_t r, std::int64_t begin, std::int64_t count, bool write) {
    const View part = ranges_[r].slice(begin, count);
    const View window =
        memory_.view().slice(slot * kSlot, kSlot).reinterpret(part.dtype(), part.count());
    const std::span values = std::span(values_[r])
                                 .subspan(static_cast<std::size_t>(begin * size_of(part.dtype())),
                                          static_cast<std::size_t>(part.bytes()));
    if (write) {
      for (std::uint8_t& each : bytes_of(window)) each = static_cast<std::uint8_t>(random_());
      std::ranges::copy(bytes_of(window), values.begin());
    }
    slots_[static_cast<std::size_t>(slot)] = {
        write ? file_.start_write(window, part) : file_.start_read(part, window),
        window,
        {values.begin(), values.end()}};
  }
  void end(std::int64_t number) {
    Slot& slot = slots_[static_cast<std::size_t>(number)];
    if (slot.ticket == 0) return;
    file_.finish(slot.ticket);
    device_.transfer().synchronize();
    EXPECT_TRUE(std::ranges::equal(bytes_of(slot.window), slot.expected));
    slot.ticket = 0;
  }

  Device& device_;
  std::mt19937& random_;
  WindowMemory memory_;
  TierFile file_;
  std::vector<View> ranges_;
  std::vector<std::vector<std::uint8_t>> values_;  // of each range
  std::vector<Slot> slots_;
};

TEST_P(TierTransfers, AreThoseOfMemoryWhateverTheirRangesAndOrder) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    std::mt19937 random(seed);
    const auto device = open(seed);
    MemoryFiles late;
    late.make_folder("/nvme");
    late.transfer_late();
    const bool on_disk = seed % 2 == 0;
    TierFileOptions options{
        .folder = on_disk ? scratch_.path() : "/nvme",
        .block_bytes = kBlock * static_cast<std::int64_t>(1 + random() % 3),
        .queue = {.depth = static_cast<int>(1 + random() % 9), .one_by_one = random() % 2 == 0},
        .overlap_events = random() % 4 != 0,
        .disk = on_disk ? nullptr : &late};
    Modelled tier(*device, options, random);
    for (int i = 0; i < 100; ++i) tier.step();
    tier.check();
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST_P(TierTransfers, ThatRunAreWaitedForByItsEnd) {
  for (const bool one_by_one : {true, false}) {
    const auto device = open();
    OneRange tier(*device, 64 * kBlock, 4,
                  {.folder = scratch_.path(),
                   .block_bytes = kBlock,
                   .queue = {.depth = 4, .one_by_one = one_by_one}});
    for (int i = 0; i < 4; ++i) tier.file.start_write(tier.window(i), tier.range);
    tier.file.start_read(tier.range, tier.window(0));
  }  // address sanitizers see what writes to windows that are gone
}

/// Makes calls fail, from number `from` on, and counts.
class FailingCalls {
 public:
  FailingCalls(std::string call, int from) : call_(std::move(call)), from_(from) {}
  void operator()(const std::string& call, const std::string& /*path*/) {
    if (!call.starts_with("queue ")) return;
    ++calls_;
    if (call == call_ && number_++ >= from_) fail("{} {} failed", call, number_ - 1);
  }
  int calls() const { return calls_; }

 private:
  std::string call_;
  int from_;
  int number_ = 0;
  int calls_ = 0;
};

TEST_P(TierTransfers, KeepTheFirstFailureAndDoNothingAfterIt) {
  for (const std::string call : {"queue write", "queue read"}) {
    for (const int from : {0, 5, 15}) {
      const auto device = open();
      FailingCalls failing(call, from);
      HookedDisk disk(std::ref(failing));
      OneRange tier(*device, 8 * kBlock, 2,
                    {.folder = scratch_.path(), .block_bytes = kBlock, .disk = &disk});
      for (const int done : {8, 16}) {
        tier.end(tier.file.start_write(tier.window(0), tier.range));
        const int tried = call == "queue write" ? done : done - 8;
        EXPECT_EQ(tier.file.failure().empty(), tried <= from) << call << from;
        tier.end(tier.file.start_read(tier.range, tier.window(1)));
        EXPECT_EQ(tier.file.failure().empty(), done <= from) << call << from;
      }
      EXPECT_EQ(tier.file.failure(), fmt::format("{} {} failed", call, from));
      const int calls = failing.calls();
      const Ticket write = tier.file.start_write(tier.window(0), tier.range);
      tier.end(tier.file.start_read(tier.range, tier.window(1)));
      tier.end(write);
      EXPECT_EQ(failing.calls(), calls);
      EXPECT_EQ(tier.file.failure(), fmt::format("{} {} failed", call, from));
    }
  }
}

TEST_P(TierTransfers, OfADiskThatIsFullNameFolderOffsetAndReason) {
  const auto device = open();
  OneRange tier(*device, 8 * kBlock, 1, {.folder = scratch_.path(), .block_bytes = 2 * kBlock});
  const testing::FileSizeLimit limit(3 * kBlock);
  tier.end(tier.file.start_write(tier.window(0), tier.range));
  EXPECT_EQ(tier.file.failure(), scratch_.path("(no name)") +
                                     ": cannot write 4096 bytes at offset 12288: File too large");
}

/// Writes a range whole and in part, and exits with 0 if nothing of it went through the page cache,
/// or if this file system wants that.
[[noreturn]] void transfer_and_tell(const std::string& folder) {
  const auto device = cpu::open();
  constexpr std::int64_t kBytes = 20 * kBlock + 4;
  OneRange tier(*device, kBytes, 2, {.folder = folder, .block_bytes = 4 * kBlock});
  tier.end(tier.file.start_write(tier.window(0), tier.range));
  tier.end(tier.file.start_write(tier.window(1, 0, 20 * kBlock), tier.range.slice(0, 20 * kBlock)));
  const std::string found = files::disk().io_description();
  const bool direct = found.find("O_DIRECT for all writes so far") != std::string::npos;
  const bool refused = found.find("without O_DIRECT") != std::string::npos;
  if (!direct && !refused) std::fputs(found.c_str(), stderr);
  std::_Exit(direct || refused ? 0 : 1);
}

// A process of its own: what it tells of its disk is of all queues.
TEST(TierTransfersDeathTest, PassByThePageCache) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Scratch scratch;
  EXPECT_EXIT(transfer_and_tell(scratch.path()), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace zero
