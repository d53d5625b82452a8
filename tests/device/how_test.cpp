// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// The disk's queues on systems that refuse part of what they would use: on threads to which the
// system refuses it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/io_uring.h>
#include <linux/magic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/memory.h"
#include "files/file_system.h"
#include "files/uring_queue.h"
#include "tests/device/restricted_thread.h"
#include "tests/device/supervised_thread.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

using testing::give_up_root;
using ::testing::HasSubstr;
using testing::on_own_thread;
using testing::refuse;
using ::testing::StartsWith;
using zero::error_of;

constexpr std::int64_t kSize = 16 << 20;

class How : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!open_uring_queue({}, {}).queue) GTEST_SKIP() << open_uring_queue({}, {}).note;
    std::ranges::fill(memory_, std::byte{7});
  }
  ~How() override { cpu::free_memory(memory_.data(), kSize); }

  /// Writes the memory and reads it back through `queue`; expects success.
  void use(TransferQueue& queue) {
    const auto output = disk().create(scratch_.path("file"), kSize);
    queue.wait(queue.write(*output, 0, memory_));
    const auto input = disk().open_read(scratch_.path("file"));
    std::vector<std::byte> found(memory_.size());
    queue.wait(queue.read(*input, 0, found));
    EXPECT_TRUE(std::ranges::equal(found, memory_));
  }
  static std::string io_description() { return disk().io_description(); }

  testing::Scratch scratch_;
  std::span<std::byte> memory_{static_cast<std::byte*>(cpu::allocate_memory(kSize)),
                               static_cast<std::size_t>(kSize)};
};

TEST_F(How, NamesTheWayOfTheNewestQueue) {
  const auto queue = disk().queue(memory_, {.depth = 4});
  EXPECT_THAT(io_description(), StartsWith("io_uring, "));
  EXPECT_THAT(io_description(), HasSubstr("registered"));
  use(*queue);
  EXPECT_THAT(io_description(), HasSubstr(", O_DIRECT for "));
  const auto without_memory = disk().queue({}, {.depth = 4});
  EXPECT_THAT(io_description(), ::testing::Not(HasSubstr("registered")));
  EXPECT_EQ(error_of([&] { disk().queue({}, {.depth = 0}); }),
            "files: a queue of depth 0, expected at least 1");
  EXPECT_EQ(error_of([&] { disk().queue({}, {.threads = 0}); }),
            "files: a queue of 0 threads, expected at least 1");
}

TEST_F(How, WithoutIoUringThreadsWrite) {
  for (const auto& [error, reason] : std::vector<std::pair<int, std::string>>{
           {ENOSYS, "Function not implemented"},
           {EPERM, "Operation not permitted"},
           {ENOMEM, "Cannot allocate memory (ulimit -l bounds it before Linux 5.12)"}}) {
    EXPECT_EQ(on_own_thread([&, error = error, reason = reason] {
                ASSERT_TRUE(refuse({SYS_io_uring_setup, error, 0, 0}));
                const auto queue = disk().queue(memory_, {.depth = 4});
                EXPECT_THAT(io_description(), StartsWith("pwrite: no io_uring: " + reason + ", "));
                use(*queue);
              }),
              "no error");
  }
}

TEST_F(How, WithAnIoUringThatIsTooOldThreadsWrite) {
  EXPECT_EQ(on_own_thread([&] {
              ASSERT_TRUE(refuse({SYS_io_uring_register, EINVAL, 1, IORING_REGISTER_PROBE}));
              const auto queue = disk().queue(memory_, {.depth = 4});
              EXPECT_THAT(io_description(),
                          StartsWith("pwrite: no io_uring: the kernel's has no reads and "
                                     "writes (Linux 5.6 has them), "));
              use(*queue);
            }),
            "no error");
}

/// The number of threads of this process that have the name. A new thread has its maker's.
int threads_named(const std::string& name) {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found == name) ++count;
  }
  return count;
}

TEST_F(How, WithoutIoUringAsManyThreadsWriteAsTransfersAndNoMoreThanAsked) {
  EXPECT_EQ(on_own_thread([&] {
              ASSERT_TRUE(refuse({SYS_io_uring_setup, EPERM, 0, 0}));
              for (const auto& [depth, threads, expected] :
                   std::vector<std::array<int, 3>>{{8, 4, 4}, {8, 6, 6}, {2, 4, 2}, {8, 1, 1}}) {
                const std::string name = fmt::format("{} by {}", depth, threads);
                ASSERT_EQ(::prctl(PR_SET_NAME, name.c_str()), 0);
                const auto queue = disk().queue(memory_, {.depth = depth, .threads = threads});
                EXPECT_EQ(threads_named(name), 1 + expected);
                use(*queue);
              }
            }),
            "no error");
}

TEST_F(How, TransfersHeldBackAreGivenToTheSystemTogether) {
  std::vector<std::uint64_t> given;
  const auto answer = [&](const testing::SystemCall& asked) {
    if (asked.arguments[1] > 0) given.push_back(asked.arguments[1]);
    return asked.run();
  };
  disk().create(scratch_.path("file"), kSize);
  const auto read = [&](bool one_by_one, const std::vector<std::uint64_t>& expected) {
    given.clear();
    const std::string ended = testing::on_supervised_thread(SYS_io_uring_enter, answer, [&] {
      const auto input = disk().open_read(scratch_.path("file"));
      const auto queue = disk().queue(memory_, {.depth = 4, .one_by_one = one_by_one});
      std::vector<TransferQueue::Ticket> tickets;
      for (const std::size_t begin : {0, 4096, 8192}) {
        tickets.push_back(queue->read(*input, 0, memory_.subspan(begin, 4096)));
      }
      queue->flush();
      for (const auto ticket : tickets) queue->wait(ticket);
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error");
    EXPECT_EQ(given, expected);
  };
  read(true, {1, 1, 1});
  read(false, {3});
}

/// The system, on which all files are of this type of file system.
testing::SystemAnswer of_type(decltype(statfs::f_type) type) {
  return [type](const testing::SystemCall& asked) {
    const long result = asked.run();
    testing::store_for_caller(
        reinterpret_cast<struct statfs*>(asked.arguments[1])->f_type,  // NOLINT
        type);
    return result;
  };
}

TEST_F(How, ThreadsWriteWhereIoUringWouldWriteOneBlockAtATime) {
  const auto write = [&](decltype(statfs::f_type) type, const std::string& expected) {
    const std::string ended = testing::on_supervised_thread(SYS_fstatfs, of_type(type), [&] {
      const auto queue = disk().queue(memory_, {.depth = 4});
      EXPECT_THAT(io_description(), StartsWith("io_uring, "));
      use(*queue);
      EXPECT_THAT(io_description(), StartsWith(expected));
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error");
  };
  write(EXT4_SUPER_MAGIC, "io_uring, O_DIRECT for ");
  write(NFS_SUPER_MAGIC,
        "pwrite: io_uring would write one block at a time to this file system (type 0x6969), ");
}

TEST_F(How, AQueueMayHoldFilesOfSeveralFileSystems) {
  int opened = 0;
  const auto every_other = [&](const testing::SystemCall& asked) {
    return of_type(opened++ % 2 == 0 ? NFS_SUPER_MAGIC : EXT4_SUPER_MAGIC)(asked);
  };
  const std::string ended = testing::on_supervised_thread(SYS_fstatfs, every_other, [&] {
    std::vector<std::unique_ptr<OutputFile>> files;
    for (const char* name : {"0", "1", "2", "3"}) {
      files.push_back(disk().create(scratch_.path(name), 0));
    }
    const auto queue = disk().queue(memory_, {.depth = 2});
    std::vector<TransferQueue::Ticket> tickets;
    for (std::size_t i = 0; i < 16; ++i) {
      tickets.push_back(queue->write(*files[i % 4], static_cast<std::int64_t>(i / 4 * 4096),
                                     memory_.subspan(i * 4096, 4096)));
    }
    const auto bad = queue->write(*files[0], -1, memory_.first(1));
    for (const auto ticket : tickets) queue->wait(ticket);
    EXPECT_EQ(error_of([&] { queue->wait(bad); }),
              scratch_.path("0") + ": cannot write 1 bytes at offset -1: Invalid argument");
    EXPECT_EQ(error_of([&] { queue->wait(bad); }),
              "files: no transfer has ticket 17; the last is 17");
  });
  if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
  EXPECT_EQ(ended, "no error");
  for (const char* name : {"0", "1", "2", "3"}) {
    EXPECT_EQ(testing::file_bytes(scratch_.path(name)), std::string(16384, '\7'));
  }
}

TEST_F(How, ARingThatIsRefusedLaterLeavesTransfersToTheCaller) {
  EXPECT_EQ(on_own_thread([&] {
              const auto queue = disk().queue(memory_, {.depth = 4});
              const auto output = disk().create(scratch_.path("file"), kSize);
              const auto before = queue->write(*output, 0, memory_);
              ASSERT_TRUE(refuse({SYS_io_uring_enter, EPERM, 0, 0}));
              queue->wait(before);
              use(*queue);
              const auto bad = queue->write(*output, -1, memory_);
              EXPECT_THAT(error_of([&] { queue->wait(bad); }), HasSubstr("Invalid argument"));
            }),
            "no error");
}

TEST_F(How, TransfersHeldBackFromARingThatIsRefusedAreLeftToTheCaller) {
  EXPECT_EQ(on_own_thread([&] {
              const auto output = disk().create(scratch_.path("file"), kSize);
              {
                const auto queue = disk().queue(memory_, {.depth = 2, .one_by_one = false});
                const auto first = queue->write(*output, 0, memory_.first(4096));
                const auto second = queue->write(*output, 4096, memory_.first(4096));
                ASSERT_TRUE(refuse({SYS_io_uring_enter, EPERM, 0, 0}));
                const auto third = queue->write(*output, 8192, memory_.first(4096));
                for (const auto ticket : {third, first, second}) queue->wait(ticket);
                queue->write(*output, 12288, memory_.first(4096));
              }  // ends what is held back
              EXPECT_EQ(testing::file_bytes(scratch_.path("file")).substr(0, 16385),
                        std::string(16384, '\7') + std::string(1, '\0'));
            }),
            "no error");
}

TEST_F(How, MemoryThatMayNotBeRegisteredIsUsedAllTheSame) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{std::min<rlim_t>(65536, before.rlim_max), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &low), 0);
  ASSERT_EQ(::chmod(scratch_.path().c_str(), 0777), 0);
  EXPECT_EQ(on_own_thread([&] {
              ASSERT_TRUE(give_up_root());
              const auto queue = disk().queue(memory_, {.depth = 4});
              EXPECT_THAT(io_description(),
                          HasSubstr("buffers not registered: Cannot allocate memory "
                                    "(ulimit -l bounds them)"));
              use(*queue);
            }),
            "no error");
  ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

TEST_F(How, FilesThatTakeNoDirectTransfersAreUsedThroughTheCacheAndTold) {
  for (const auto& [error, reason] : std::vector<std::pair<int, std::string>>{
           {EINVAL, "Invalid argument"}, {EMFILE, "Too many open files"}}) {
    EXPECT_EQ(on_own_thread([&, error = error, reason = reason] {
                ASSERT_TRUE(refuse({SYS_openat, error, 2, O_DIRECT}));
                const auto queue = disk().queue(memory_, {.depth = 4});
                use(*queue);
                EXPECT_THAT(io_description(), HasSubstr(" without O_DIRECT: " + reason + ")"));
              }),
              "no error");
  }
}

}  // namespace
}  // namespace zero::files
