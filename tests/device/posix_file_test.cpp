// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What a disk's file does by the type of its file system, where this machine has another: the
// system's answers are exchanged.
#include "files/posix_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "files/file_system.h"
#include "files/file_system_type.h"
#include "files/uring_queue.h"
#include "tests/device/supervised_thread.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::load_of_caller;
using testing::on_supervised_thread;
using testing::Scratch;
using ::testing::StartsWith;
using testing::store_for_caller;

TEST(FileSystemTypes, SayWhereIoUringRunsTransfersOfOneFileSideBySide) {
  for (const std::int64_t type : std::initializer_list<std::int64_t>{
           EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC}) {
    EXPECT_TRUE(takes_requests_side_by_side(type)) << name_of_type(type);
  }
  constexpr std::int64_t kZfs = 0x2fc12fc1;
  for (const std::int64_t type : std::initializer_list<std::int64_t>{
           NFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, TMPFS_MAGIC, V9FS_MAGIC, kZfs, 0}) {
    EXPECT_FALSE(takes_requests_side_by_side(type)) << name_of_type(type);
  }
}

TEST(FileSystemTypes, HaveNamesWhereTheyAreKnownHoweverTheNumberIsKept) {
  EXPECT_EQ(name_of_type(EXT4_SUPER_MAGIC), "ext4");
  EXPECT_EQ(name_of_type(0x1234), "file system 0x1234");
  const auto btrfs = static_cast<std::int32_t>(BTRFS_SUPER_MAGIC);
  EXPECT_LT(btrfs, 0);
  EXPECT_EQ(name_of_type(btrfs), "btrfs");
  EXPECT_EQ(medium_of_type(static_cast<std::int32_t>(RAMFS_MAGIC)), Medium::memory);
  EXPECT_EQ(medium_of_type(0x1234), Medium::disk);
}

TEST(DirectTransfers, AreSaidToGoThroughTheCacheWhereTheyDo) {
  EXPECT_EQ(cached_because(Medium::disk, false, std::nullopt), "");
  EXPECT_EQ(cached_because(Medium::network, false, 512), "");
  EXPECT_EQ(cached_because(Medium::disk, false, 16384), "");
  EXPECT_EQ(cached_because(Medium::disk, false, 0),
            "the file system has no direct transfers of it");
  EXPECT_EQ(cached_because(Medium::memory, false, std::nullopt), "it is in memory");
  EXPECT_EQ(cached_because(Medium::disk, true, std::nullopt),
            "btrfs writes files with checksums through the cache");
}

#ifdef STATX_DIOALIGN
/// The system, where direct transfers are aligned to so many bytes.
testing::SystemAnswer with_direct_blocks_of(std::uint32_t bytes) {
  return [bytes](const testing::SystemCall& asked) {
    const long result = asked.run();
    auto& status = *reinterpret_cast<struct statx*>(asked.arguments[4]);  // NOLINT
    store_for_caller(status.stx_mask, load_of_caller(status.stx_mask) | STATX_DIOALIGN);
    store_for_caller(status.stx_dio_offset_align, bytes);
    return result;
  };
}

TEST(DirectTransfers, AreNotTriedWhereTheSystemSaysThatThereAreNone) {
  const Scratch scratch;
  const auto opened = [&](std::uint32_t block, const std::string& expected) {
    TransferCounts counts;
    const std::string ended = on_supervised_thread(SYS_statx, with_direct_blocks_of(block), [&] {
      PosixFile file(scratch.path("file"), O_WRONLY | O_CREAT, counts);
      const bool direct = file.direct_descriptor() >= 0;
      if (block > 0 && !direct) GTEST_SKIP() << "no O_DIRECT in " << scratch.path();
      EXPECT_EQ(direct, block > 0);
      if (direct) file.refuse_direct(EINVAL);
      EXPECT_EQ(file.direct_descriptor(), -1);
      EXPECT_THAT(counts.text(), EndsWith(" (1 file without O_DIRECT: " + expected + ")"));
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error");
  };
  opened(0, "the file system has no direct transfers of it");
  opened(512, "Invalid argument");
  opened(16384, "they take whole blocks of 16384 bytes, not of 4096");
}
#endif

/// The system, where all files are of btrfs. Notes what of the calls matters there.
class Btrfs {
 public:
  static inline const std::vector<long> kCalls{SYS_fstatfs, SYS_ioctl, SYS_fallocate};

  long operator()(const testing::SystemCall& asked) {
    if (asked.number == SYS_fallocate) noted.emplace_back("reserve");
    if (asked.number != SYS_ioctl) {
      const long result = asked.run();
      if (asked.number == SYS_fstatfs) {
        auto& holder = *reinterpret_cast<struct statfs*>(asked.arguments[1]);  // NOLINT
        store_for_caller(holder.f_type, decltype(holder.f_type){BTRFS_SUPER_MAGIC});
      }
      return result;
    }
    int& value = *reinterpret_cast<int*>(asked.arguments[2]);  // NOLINT
    if (asked.arguments[1] == FS_IOC_GETFLAGS) {
      store_for_caller(value, flags);
    } else if (asked.arguments[1] == FS_IOC_SETFLAGS) {
      noted.emplace_back("set flags");
      if (declines) return -EOPNOTSUPP;
      flags = load_of_caller(value);
    }
    return 0;
  }

  int flags = 0x10;  // of any file: one that others have set
  bool declines = false;
  std::vector<std::string> noted;
};

void write_a_block(OutputFile& file) {
  alignas(4096) static std::byte block[4096];  // NOLINT
  const auto queue = disk().queue({}, {.depth = 2});
  queue->wait(queue->write(file, 0, block));
}

TEST(Btrfs, WritesOverTheBlocksOfScratchFilesAndIsAskedToBeforeTheyHaveAny) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  const Scratch scratch;
  Btrfs btrfs;
  const std::string ended = on_supervised_thread(Btrfs::kCalls, std::ref(btrfs), [&] {
    const ScratchFile file = disk().create_scratch(scratch.path(), 8192);
    write_a_block(*file.output);
    EXPECT_THAT(disk().io_description(), StartsWith("io_uring, "));
  });
  if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
  EXPECT_EQ(ended, "no error");
  EXPECT_THAT(btrfs.noted, ElementsAre("set flags", "reserve"));
  EXPECT_EQ(btrfs.flags, 0x10 | FS_NOCOW_FL);
}

TEST(Btrfs, KeepsTheChecksumsOfOtherFilesAndOfScratchFilesIfItDeclines) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  const Scratch scratch;
  Btrfs btrfs;
  btrfs.declines = true;
  const auto through_the_cache = [](OutputFile& file) {
    write_a_block(file);
    EXPECT_THAT(disk().io_description(),
                StartsWith("pwrite: io_uring would move one block of a file at a time on btrfs, "));
    EXPECT_THAT(disk().io_description(),
                HasSubstr("btrfs writes files with checksums through the cache)"));
  };
  std::string ended = on_supervised_thread(Btrfs::kCalls, std::ref(btrfs), [&] {
    through_the_cache(*disk().create(scratch.path("file"), 8192));
  });
  if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
  EXPECT_EQ(ended, "no error");
  EXPECT_THAT(btrfs.noted, ElementsAre("reserve"));
  ended = on_supervised_thread(Btrfs::kCalls, std::ref(btrfs), [&] {
    through_the_cache(*disk().create_scratch(scratch.path(), 8192).output);
  });
  EXPECT_EQ(ended, "no error");
}

}  // namespace
}  // namespace zero::files
