// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What every queue of the disk does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked_math.h"
#include "device/cpu/memory.h"
#include "files/file_system.h"
#include "files/pwrite_queue.h"
#include "files/uring_queue.h"
#include "tests/device/restricted_thread.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

using testing::file_bytes;
using testing::FileSizeLimit;
using testing::Scratch;
using zero::error_of;

using Ticket = TransferQueue::Ticket;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Memory aligned to pages, with a value of its own in every byte.
class Memory {
 public:
  explicit Memory(std::int64_t bytes, unsigned seed = 1)
      : bytes_(static_cast<std::byte*>(cpu::allocate_memory(bytes)),
               static_cast<std::size_t>(bytes)) {
    std::mt19937 random(seed);
    for (std::byte& each : bytes_) each = static_cast<std::byte>(random());
  }
  ~Memory() { cpu::free_memory(bytes_.data(), std::ssize(bytes_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::span<std::byte> all() const { return bytes_; }
  std::span<std::byte> part(std::int64_t begin, std::int64_t count) const {
    return bytes_.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
  }
  std::string text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }
  void clear() { std::ranges::fill(bytes_, std::byte{0}); }

 private:
  std::span<std::byte> bytes_;
};

struct QueueCase {
  std::string name;
  bool registers = false;
  bool one_by_one = true;
  /// Null if this system has no such queue.
  std::function<std::unique_ptr<TransferQueue>(std::span<std::byte> memory,
                                               const QueueOptions& options)>
      open;
};

class Queues : public ::testing::TestWithParam<QueueCase> {
 protected:
  void SetUp() override {
    if (!open(1)) GTEST_SKIP() << "no " << GetParam().name << " here";
  }
  static std::unique_ptr<TransferQueue> open(int depth, std::span<std::byte> memory = {}) {
    return GetParam().open(GetParam().registers ? memory : std::span<std::byte>(),
                           {.depth = depth, .one_by_one = GetParam().one_by_one});
  }
  std::string path() const { return scratch_.path("file"); }

  Scratch scratch_;
};

const auto kUring = [](std::span<std::byte> memory, const QueueOptions& options) {
  return open_uring_queue(memory, options).queue;
};
const auto kPwrite = [](std::span<std::byte> /*memory*/, const QueueOptions& options) {
  return std::make_unique<PwriteQueue>(options);
};

const auto kDisk = [](std::span<std::byte> memory, const QueueOptions& options) {
  return disk().queue(memory, options);
};

INSTANTIATE_TEST_SUITE_P(OfEachKind, Queues,
                         ::testing::Values(QueueCase{"io_uring", false, true, kUring},
                                           QueueCase{"io_uring_registered", true, true, kUring},
                                           QueueCase{"io_uring_held_back", true, false, kUring},
                                           QueueCase{"pwrite", false, true, kPwrite},
                                           QueueCase{"disk", true, true, kDisk},
                                           QueueCase{"disk_held_back", true, false, kDisk}),
                         [](const auto& each) { return each.param.name; });

TEST_P(Queues, WriteAndReadAFileInBlocksWithAnUnalignedTail) {
  constexpr std::int64_t kSize = 13 * kMiB + 12345;
  const Memory written(kSize);
  const Memory read(kSize, 2);
  const auto blocks =
      [&](const std::function<Ticket(std::int64_t begin, std::int64_t count)>& start,
          TransferQueue& queue) {
        std::vector<Ticket> tickets;
        for (std::int64_t begin = 0; begin < kSize; begin += kMiB) {
          tickets.push_back(start(begin, std::min(kMiB, kSize - begin)));
        }
        for (const Ticket ticket : tickets) queue.wait(ticket);
      };
  const auto output = disk().create(path(), kSize);
  const auto writes = open(4, written.all());
  blocks([&](auto begin,
             auto count) { return writes->write(*output, begin, written.part(begin, count)); },
         *writes);
  output->sync();
  EXPECT_TRUE(file_bytes(path()) == written.text());
  const auto input = disk().open_read(path());
  const auto reads = open(4, read.all());
  blocks(
      [&](auto begin, auto count) { return reads->read(*input, begin, read.part(begin, count)); },
      *reads);
  EXPECT_TRUE(read.text() == written.text());
}

/// Cuts [0, size) at random places, of which some are ends of blocks or sectors.
std::vector<std::pair<std::int64_t, std::int64_t>> random_ranges(std::int64_t size,
                                                                 std::mt19937& random) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (std::int64_t begin = 0; begin < size;) {
    const std::int64_t unit = std::vector<std::int64_t>{1, 512, 4096, 4096, 4096}[random() % 5];
    const std::int64_t end =
        std::min(size, round_up(begin + 1 + static_cast<std::int64_t>(random() % 40000), unit));
    ranges.emplace_back(begin, end);
    begin = end;
  }
  std::shuffle(ranges.begin(), ranges.end(), random);
  return ranges;
}

TEST_P(Queues, RangesOfAnyAlignmentMeetInOneFileWithWritesOfOtherThreads) {
  constexpr std::int64_t kSize = 2 * kMiB + 77;
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::mt19937 random(seed);
    const Memory memory(kSize + 4096, seed);
    // The same distance to a page in memory and file, or another.
    const std::int64_t shift = seed % 2 == 0 ? 0 : 64;
    const auto part = [&](const auto& range) {
      return memory.part(shift + range.first, range.second - range.first);
    };
    const auto file = disk().create(path(), kSize);
    const auto ranges = random_ranges(kSize, random);
    const std::size_t half = ranges.size() / 2;
    {
      const std::jthread other([&] {
        for (std::size_t i = 0; i < half; ++i) file->write(ranges[i].first, part(ranges[i]));
      });
      const auto queue = open(8, memory.all());
      for (std::size_t i = half; i < ranges.size(); ++i) {
        queue->write(*file, ranges[i].first, part(ranges[i]));
      }
    }  // waits for all transfers
    ASSERT_TRUE(file_bytes(path()) == memory.text().substr(static_cast<std::size_t>(shift), kSize))
        << "seed " << seed;
    const Memory read(kSize + 4096, seed + 100);
    const auto input = disk().open_read(path());
    const auto queue = open(8, read.all());
    std::vector<Ticket> tickets;
    for (const auto& range : random_ranges(kSize, random)) {
      tickets.push_back(queue->read(*input, range.first,
                                    read.part(shift + range.first, range.second - range.first)));
    }
    for (const Ticket ticket : tickets) queue->wait(ticket);
    ASSERT_TRUE(std::ranges::equal(read.part(shift, kSize), memory.part(shift, kSize)))
        << "seed " << seed;
  }
}

TEST_P(Queues, AReadSeesWhatWasWrittenLastWhicheverWay) {
  constexpr std::int64_t kSize = 64 * 1024;
  const Memory one(kSize, 1);
  const Memory two(kSize, 2);
  const Memory found(kSize, 3);
  const auto output = disk().create(path(), kSize);
  const auto input = disk().open_read(path());
  const auto queue = open(2);
  for (int round = 0; round < 4; ++round) {
    output->write(0, one.all());
    queue->wait(queue->read(*input, 0, found.all()));
    ASSERT_TRUE(found.text() == one.text()) << round;
    queue->wait(queue->write(*output, 0, two.all()));
    input->read(0, found.all());
    ASSERT_TRUE(found.text() == two.text()) << round;
    output->write(5000, one.part(5000, 3));
    queue->wait(queue->write(*output, 8192, one.part(8192, 4096)));
    queue->wait(queue->read(*input, 4096, found.part(4096, 8192)));
    for (std::int64_t i = 4096; i < 12288; ++i) {
      const bool rewritten = (i >= 5000 && i < 5003) || i >= 8192;
      ASSERT_EQ(found.part(i, 1)[0], (rewritten ? one : two).part(i, 1)[0]) << i;
    }
  }
}

TEST_P(Queues, AFullQueueBlocksAndGoesOn) {
  for (const int depth : {1, 2, 3, 64}) {
    const Memory memory(300 * 4096);
    const auto file = disk().create(path(), 300 * 4096);
    const auto queue = open(depth, memory.all());
    std::vector<Ticket> tickets;
    for (std::int64_t i = 0; i < 300; ++i) {
      tickets.push_back(queue->write(*file, i * 4096, memory.part(i * 4096, 4096)));
    }
    std::ranges::reverse(tickets);
    for (const Ticket ticket : tickets) queue->wait(ticket);
    ASSERT_TRUE(file_bytes(path()) == memory.text()) << depth;
  }
}

TEST_P(Queues, AFailureIsThatOfItsTransferAndOfNoOther) {
  const Memory memory(10 * kMiB);
  const auto file = disk().create(path(), 0);
  const auto queue = open(3, memory.all());
  const FileSizeLimit limit(6 * kMiB + kMiB / 2);
  std::vector<Ticket> tickets;
  for (std::int64_t i = 0; i < 10; ++i) {
    tickets.push_back(queue->write(*file, i * kMiB, memory.part(i * kMiB, kMiB)));
  }
  for (std::size_t i = 0; i < 10; ++i) {
    const std::string found = error_of([&] { queue->wait(tickets[i]); });
    if (i < 6) {
      EXPECT_EQ(found, "no error");
    }
    if (i == 6) {
      EXPECT_EQ(found, path() + ": cannot write 524288 bytes at offset 6815744: File too large");
    }
    if (i == 8) {
      EXPECT_EQ(found, path() + ": cannot write 1048576 bytes at offset 8388608: File too large");
    }
  }
  queue->wait(queue->write(*file, kMiB, memory.part(0, kMiB)));
  EXPECT_EQ(file_bytes(path()).size(), 6 * kMiB + kMiB / 2);
}

TEST_P(Queues, AFullDiskIsNamed) {
  const Memory memory(4 * kMiB);
  EXPECT_EQ(testing::on_own_thread([&] {
              if (!testing::mount_small_disk(scratch_.path(), 2 * kMiB)) {
                GTEST_SKIP() << "no right to mount a small disk";
              }
              EXPECT_EQ(error_of([&] { disk().create(path(), 3 * kMiB); }),
                        path() + ": cannot make room for 3145728 bytes: No space left on device");
              const auto file = disk().create(path(), 0);
              const auto queue = open(1, memory.all());
              std::vector<Ticket> tickets;
              for (std::int64_t i = 0; i < 4; ++i) {
                tickets.push_back(queue->write(*file, i * kMiB, memory.part(i * kMiB, kMiB)));
              }
              for (std::size_t i = 0; i < 2; ++i) queue->wait(tickets[i]);
              EXPECT_EQ(error_of([&] { queue->wait(tickets[3]); }),
                        path() +
                            ": cannot write 1048576 bytes at offset 3145728: No space left on "
                            "device; free space there");
              queue->wait(queue->write(*file, 0, memory.part(kMiB, kMiB)));
            }),
            "no error");
}

TEST_P(Queues, ReadingBehindTheEndSaysWhereItEnds) {
  const Memory memory(3 * 4096);
  const auto output = disk().create(path(), 0);
  output->write(0, memory.part(0, 5000));
  const auto file = disk().open_read(path());
  const auto queue = open(4);
  const Memory another(4096);
  const Ticket beyond = queue->read(*file, 0, memory.all());
  const Ticket good = queue->read(*file, 0, another.part(0, 10));
  EXPECT_EQ(error_of([&] { queue->wait(beyond); }),
            path() + ": ends at offset 5000, expected 7288 more bytes there: the file was cut");
  queue->wait(good);
  EXPECT_EQ(error_of([&] { queue->wait(queue->read(*file, -1, memory.part(0, 1))); }),
            path() + ": cannot read 1 bytes at offset -1: Invalid argument");
}

TEST_P(Queues, MayBeMadeOnOneThreadAndUsedOnAnother) {
  const Memory memory(8 * kMiB);
  const auto file = disk().create(path(), 8 * kMiB);
  auto queue = open(4, memory.all());
  std::jthread([&] {
    std::vector<Ticket> tickets;
    for (std::int64_t i = 0; i < 8; ++i) {
      tickets.push_back(queue->write(*file, i * kMiB, memory.part(i * kMiB, kMiB)));
    }
    for (const Ticket ticket : tickets) queue->wait(ticket);
  }).join();
  queue.reset();
  EXPECT_TRUE(file_bytes(path()) == memory.text());
}

TEST_P(Queues, ManyQueuesWriteOneFileTogether) {
  const Memory memory(16 * kMiB);
  const auto file = disk().create(path(), 16 * kMiB);
  {
    std::vector<std::jthread> ranks;
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      ranks.emplace_back([&, rank] {
        const auto queue = open(2, memory.all());
        for (std::int64_t i = rank; i < 16; i += 4) {
          queue->write(*file, i * kMiB, memory.part(i * kMiB, kMiB));
        }
      });
    }
  }
  EXPECT_TRUE(file_bytes(path()) == memory.text());
}

TEST_P(Queues, NothingIsWrittenAtOnce) {
  const auto file = disk().create(path(), 0);
  const auto queue = open(1);
  for (int i = 0; i < 3; ++i) queue->wait(queue->write(*file, 0, {}));
  EXPECT_EQ(file_bytes(path()), "");
}

class ForeignFile final : public OutputFile, public InputFile {
 public:
  const std::string& path() const override { return path_; }
  void write(std::int64_t /*offset*/, std::span<const std::byte> /*bytes*/) override {}
  void sync() override {}
  std::int64_t size() const override { return 0; }
  void read(std::int64_t /*offset*/, std::span<std::byte> /*out*/) override {}

 private:
  std::string path_ = "foreign";
};

TEST_P(Queues, RefuseFilesOfOthersAndTicketsThatTheyNeverGave) {
  const auto queue = open(1);
  ForeignFile foreign;
  EXPECT_EQ(error_of([&] { queue->write(foreign, 0, {}); }),
            "foreign: this queue cannot write files of another file system");
  EXPECT_EQ(error_of([&] { queue->read(foreign, 0, {}); }),
            "foreign: this queue cannot read files of another file system");
  EXPECT_EQ(error_of([&] { queue->wait(1); }), "files: no transfer has ticket 1; the last is 0");
}

}  // namespace
}  // namespace zero::files
