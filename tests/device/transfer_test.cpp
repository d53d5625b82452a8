// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>

#include "files/posix_file.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

constexpr std::int64_t kBlock = Transfer::kBlock;

/// A file and memory of four blocks, aligned.
class Transfers : public ::testing::Test {
 protected:
  Transfer write(std::int64_t offset, std::size_t begin, std::size_t bytes) {
    return Transfer::write(file_, offset, std::span(memory_).subspan(begin, bytes),
                           Transfer::Mode::direct);
  }
  /// Whether the call goes past the cache, where the file system lets any do so.
  bool is_direct(const Transfer::Call& call) {
    EXPECT_NE(call.descriptor, -1);
    return call.descriptor != file_.descriptor();
  }
  void SetUp() override {
    if (file_.direct_descriptor() < 0) GTEST_SKIP() << "no O_DIRECT in " << scratch_.path();
  }

  testing::Scratch scratch_;
  TransferCounts counts_;
  PosixFile file_{scratch_.path("file"), O_WRONLY | O_CREAT, counts_};
  alignas(kBlock) std::array<std::byte, 4 * kBlock> memory_{};
};

TEST_F(Transfers, MoveWholeBlocksPastTheCacheAndTheRestThroughIt) {
  Transfer transfer = write(kBlock, 0, 2 * kBlock + 5);
  Transfer::Call call = transfer.next_call();
  EXPECT_TRUE(is_direct(call));
  EXPECT_EQ(call.offset, kBlock);
  EXPECT_EQ(call.memory.data(), memory_.data());
  EXPECT_EQ(std::ssize(call.memory), 2 * kBlock);
  transfer.advance(2 * kBlock);
  call = transfer.next_call();
  EXPECT_FALSE(is_direct(call));
  EXPECT_EQ(call.offset, 3 * kBlock);
  EXPECT_EQ(std::ssize(call.memory), 5);
  EXPECT_TRUE(transfer.wants_call());
  transfer.advance(5);
  EXPECT_FALSE(transfer.wants_call());
  EXPECT_EQ(transfer.error(), "");
}

TEST_F(Transfers, OfUnalignedRangesGoThroughTheCache) {
  EXPECT_FALSE(is_direct(write(kBlock + 512, 0, kBlock).next_call()));
  EXPECT_FALSE(is_direct(write(kBlock, 512, kBlock).next_call()));
  EXPECT_FALSE(is_direct(write(kBlock, 0, kBlock - 1).next_call()));
  EXPECT_FALSE(
      is_direct(Transfer::write(file_, 0, std::span(memory_), Transfer::Mode::cached).next_call()));
  EXPECT_FALSE(write(kBlock, 0, 0).wants_call());
}

TEST_F(Transfers, ASystemThatRefusesADirectOneIsAskedOnceForEachFile) {
  for (const auto& [error, reason] : std::vector<std::pair<int, std::string>>{
           {EINVAL, "Invalid argument"}, {EFAULT, "Bad address"}}) {
    PosixFile file(scratch_.path("file"), O_WRONLY, counts_);
    const auto all = std::span(memory_);
    Transfer transfer = Transfer::write(file, 0, all, Transfer::Mode::direct);
    EXPECT_NE(transfer.next_call().descriptor, file.descriptor());
    transfer.advance(-error);
    ASSERT_TRUE(transfer.wants_call());
    EXPECT_EQ(transfer.next_call().descriptor, file.descriptor());
    Transfer next = Transfer::write(file, 0, all, Transfer::Mode::direct);
    EXPECT_EQ(next.next_call().descriptor, file.descriptor());
    transfer.advance(-error);
    EXPECT_FALSE(transfer.wants_call());
    EXPECT_EQ(transfer.error(), file.path() + ": cannot write 16384 bytes at offset 0: " + reason);
    EXPECT_THAT(counts_.text(), ::testing::EndsWith(" without O_DIRECT: " + reason + ")"));
  }
  EXPECT_EQ(counts_.text(),
            "no queue, nothing written yet (2 files without O_DIRECT: Bad address)");
}

TEST_F(Transfers, GoOnAfterInterruptionsAndShortWrites) {
  Transfer transfer = write(0, 0, 3 * kBlock);
  transfer.next_call();
  transfer.advance(-EINTR);
  ASSERT_TRUE(transfer.wants_call());
  EXPECT_EQ(std::ssize(transfer.next_call().memory), 3 * kBlock);
  transfer.advance(kBlock);
  Transfer::Call call = transfer.next_call();
  EXPECT_TRUE(is_direct(call));
  EXPECT_EQ(call.offset, kBlock);
  transfer.advance(100);
  call = transfer.next_call();
  EXPECT_FALSE(is_direct(call));
  EXPECT_EQ(call.offset, kBlock + 100);
  EXPECT_EQ(std::ssize(call.memory), 2 * kBlock - 100);
}

TEST_F(Transfers, CountWhatIsWrittenPastTheCacheAndThroughIt) {
  counts_.use("io_uring", "registered buffers");
  EXPECT_EQ(counts_.text(), "io_uring, nothing written yet, registered buffers");
  Transfer transfer = write(0, 0, 2 * kBlock + 1000);
  transfer.next_call();
  transfer.advance(2 * kBlock);
  EXPECT_EQ(counts_.text(), "io_uring, O_DIRECT for all writes so far, registered buffers");
  transfer.next_call();
  transfer.advance(1000);
  EXPECT_EQ(counts_.text(),
            "io_uring, O_DIRECT for 8.2 kB of 9.2 kB written so far, registered buffers");
  // Small files that are written at once are no matter of the disk's speed.
  Transfer small = Transfer::write(file_, 0, std::span(memory_), Transfer::Mode::cached);
  small.next_call();
  small.advance(kBlock);
  counts_.use("pwrite: no io_uring", "");
  EXPECT_EQ(counts_.text(), "pwrite: no io_uring, O_DIRECT for 8.2 kB of 9.2 kB written so far");
}

TEST_F(Transfers, NameFileOffsetAndReasonIfTheyFail) {
  for (const auto& [error, reason] : std::vector<std::pair<int, std::string>>{
           {ENOSPC, "No space left on device; free space there"},
           {EIO, "Input/output error"},
           {EAGAIN, "Resource temporarily unavailable"},
           {EDQUOT, "Disk quota exceeded; free space there"}}) {
    Transfer transfer = write(0, 0, 2 * kBlock);
    transfer.next_call();
    transfer.advance(kBlock);
    transfer.next_call();
    transfer.advance(-error);
    EXPECT_FALSE(transfer.wants_call());
    EXPECT_EQ(transfer.error(),
              file_.path() + ": cannot write 4096 bytes at offset 4096: " + reason);
  }
  Transfer none = write(0, 0, kBlock);
  none.next_call();
  none.advance(0);
  EXPECT_EQ(none.error(), file_.path() + ": the system wrote none of 4096 bytes at offset 0");
  EXPECT_EQ(write(-1, 0, 1).error(),
            file_.path() + ": cannot write 1 bytes at offset -1: Invalid argument");
}

}  // namespace
}  // namespace zero::files
