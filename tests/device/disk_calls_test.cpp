// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Calls whose time a disk decides, as another thread sees them while they go on.
#include "files/disk_calls.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/descriptor.h"
#include "files/file_system.h"
#include "files/pwrite_queue.h"
#include "files/uring_queue.h"
#include "tests/device/calls_to_disk.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

using testing::a_call_to_the_disk_goes_on;
using testing::counted_calls;
using testing::Scratch;
using ::testing::UnorderedElementsAreArray;

TEST(DiskCalls, AreSeenWhileTheSystemIsAtThem) {
  const Scratch scratch;
#ifdef SYS_rename
  const std::vector<long> names{SYS_mkdir, SYS_rename, SYS_unlink, SYS_rmdir, SYS_readlink};
#else
  const std::vector<long> names{SYS_mkdirat, SYS_renameat, SYS_unlinkat, SYS_readlinkat};
#endif
  std::vector<long> numbers{SYS_openat, SYS_fallocate, SYS_pwrite64,  SYS_pread64,
                            SYS_fsync,  SYS_statfs,    SYS_getdents64};
  numbers.insert(numbers.end(), names.begin(), names.end());
  std::filesystem::create_symlink("file", scratch.path("link"));
  const DiskCalls before = disk_calls();
  EXPECT_EQ(before.begun, before.ended);
  std::array<std::byte, 512> bytes{};
  EXPECT_THAT(counted_calls(numbers,
                            [&] {
                              const auto file = disk().create(scratch.path("file"), 512);
                              file->write(0, bytes);
                              file->sync();
                              disk().open_read(scratch.path("file"))->read(0, bytes);
                              disk().list(scratch.path());
                              names_by_links(scratch.path("link"));
                              disk().sync_folder(scratch.path());
                              disk().free_bytes(scratch.path());
                              disk().make_folder(scratch.path("folder"));
                              disk().rename(scratch.path("file"), scratch.path("other"));
                              disk().remove_file(scratch.path("other"));
                              disk().remove_folder(scratch.path("folder"));
                            }),
              UnorderedElementsAreArray(numbers));
  EXPECT_FALSE(a_call_to_the_disk_goes_on());
}

TEST(DiskCalls, OfFilesOpenedElsewhereAreThoseOfUninterrupted) {
  const Scratch scratch;
  const std::string path = scratch.path("file");
  const std::vector<long> numbers{SYS_openat, SYS_ftruncate, SYS_fdatasync};
  EXPECT_THAT(counted_calls(numbers,
                            [&] {
                              const Descriptor file(uninterrupted([&] {
                                return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
                              }));
                              EXPECT_EQ(uninterrupted([&] { return ::ftruncate(file.get(), 5); }),
                                        0);
                              EXPECT_EQ(uninterrupted([&] { return ::fdatasync(file.get()); }), 0);
                            }),
              UnorderedElementsAreArray(numbers));
  EXPECT_FALSE(a_call_to_the_disk_goes_on());
}

TEST(DiskCalls, OneThatASignalInterruptsIsRepeated) {
  int left = 3;
  const DiskCalls before = disk_calls();
  const auto call = [&] {
    errno = EINTR;
    return --left > 0 ? -1 : 7;
  };
  EXPECT_EQ(uninterrupted(call), 7);
  EXPECT_EQ(left, 0);
  EXPECT_EQ(disk_calls(), (DiskCalls{.begun = before.begun + 1, .ended = before.ended + 1}));
}

TEST(DiskCalls, OneWithinAnotherCountsOnce) {
  const DiskCalls before = disk_calls();
  {
    const DiskCall outer;
    { const DiskCall inner; }
    EXPECT_TRUE(a_call_to_the_disk_goes_on()) << "the outer one";
  }
  EXPECT_EQ(disk_calls(), (DiskCalls{.begun = before.begun + 1, .ended = before.ended + 1}));
}

TEST(DiskCalls, AreNotCountedOfAThreadForWhichNothingWaits) {
  const DiskCalls before = disk_calls();
  {
    const UncountedDiskCalls uncounted;
    const DiskCall call;
    EXPECT_FALSE(a_call_to_the_disk_goes_on());
    std::thread([] {
      const DiskCall of_another;
      EXPECT_TRUE(a_call_to_the_disk_goes_on());
    }).join();
  }
  const DiskCall call;
  EXPECT_EQ(disk_calls(), (DiskCalls{.begun = before.begun + 2, .ended = before.ended + 1}));
}

TEST(DiskCalls, OfAQueuesThreadsAreSeen) {
  const Scratch scratch;
  const std::vector<long> numbers{SYS_pwrite64};
  const std::array<std::byte, 512> bytes{};
  EXPECT_THAT(counted_calls(numbers,
                            [&] {
                              const auto file = disk().create(scratch.path("file"), 512);
                              PwriteQueue queue({.depth = 2});
                              queue.wait(queue.write(*file, 0, bytes));
                            }),
              UnorderedElementsAreArray(numbers));
  EXPECT_FALSE(a_call_to_the_disk_goes_on());
}

// A rank may hang beside transfers that it has begun.
TEST(DiskCalls, OfIoUringAreThoseOfWhoSubmitsOrWaits) {
  if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
  const Scratch scratch;
  const std::vector<long> numbers{SYS_io_uring_enter};
  const std::array<std::byte, 512> bytes{};
  EXPECT_THAT(counted_calls(numbers,
                            [&] {
                              const auto file = disk().create(scratch.path("file"), 512);
                              const auto queue = open_uring_queue({}, {}).queue;
                              const auto ticket = queue->write(*file, 0, bytes);
                              EXPECT_FALSE(a_call_to_the_disk_goes_on());
                              const DiskCalls before = disk_calls();
                              queue->wait(ticket);
                              EXPECT_GT(disk_calls().begun, before.begun);
                            }),
              UnorderedElementsAreArray(numbers));
  EXPECT_FALSE(a_call_to_the_disk_goes_on());
}

}  // namespace
}  // namespace zero::files
