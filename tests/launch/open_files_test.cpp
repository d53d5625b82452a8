// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/open_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/descriptor.h"
#include "tests/device/calls_to_disk.h"
#include "tests/device/restricted_thread.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;

/// A process that may open 256 files, until it raises its limit.
class OpenFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit low{.rlim_cur = 256, .rlim_max = before_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  }
  ~OpenFiles() override { ::setrlimit(RLIMIT_NOFILE, &before_); }
  static rlim_t soft() {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_cur;
  }

  rlimit before_{};
};

TEST_F(OpenFiles, MayBeAsManyAsTheHardLimitAllows) {
  const OpenFileLimit limit = raise_open_file_limit();
  EXPECT_EQ(limit.hard, before_.rlim_max);
  EXPECT_EQ(limit.soft, before_.rlim_max);
  EXPECT_EQ(soft(), before_.rlim_max);
  EXPECT_EQ(raise_open_file_limit().soft, before_.rlim_max);
}

TEST_F(OpenFiles, KeepTheirLimitIfTheSystemRefuses) {
  EXPECT_EQ(on_own_thread([&] {
              // The C library sets limits by prlimit64, which also reads them.
              ASSERT_TRUE(refuse({SYS_prlimit64, EPERM, 2, ~0U}));
              ASSERT_TRUE(refuse({SYS_setrlimit, EPERM, 0, 0}));
              const OpenFileLimit limit = raise_open_file_limit();
              EXPECT_EQ(limit.soft, 256);
              EXPECT_EQ(limit.hard, before_.rlim_max);
            }),
            "no error");
  EXPECT_EQ(soft(), 256);
}

void expect_that_locks_are_seen(const std::string& path) {
  const auto opened = [&](int access) {
    return Descriptor(::open(path.c_str(), access | O_CREAT | O_CLOEXEC, 0600));
  };
  Descriptor holder = opened(O_RDWR);
  const Descriptor other = opened(O_RDONLY);
  EXPECT_FALSE(is_locked(other.get()));
  EXPECT_EQ(lock_file(holder.get()), 0);
  EXPECT_TRUE(is_locked(other.get()));
  EXPECT_TRUE(is_locked(opened(O_RDWR).get())) << "asking takes and frees nothing";
  holder = Descriptor(-1);
  EXPECT_FALSE(is_locked(other.get()));
  EXPECT_EQ(lock_file(opened(O_RDWR).get()), 0) << "asking takes nothing";
  EXPECT_FALSE(is_locked(-1));
}

TEST(FileLocks, AreSeenByOtherOpenFiles) {
  const Scratch folder;
  expect_that_locks_are_seen(folder.path("file"));
}

TEST(FileLocks, AreSeenWhereTheSystemKnowsNoneOfOpenFiles) {
  const Scratch folder;
  EXPECT_EQ(on_own_thread([&] {
              constexpr std::uint32_t kOfOpenFiles = 0x20;  // F_OFD_GETLK, F_OFD_SETLK, no others
              ASSERT_TRUE(refuse({SYS_fcntl, EINVAL, 1, kOfOpenFiles}));
              expect_that_locks_are_seen(folder.path("file"));
            }),
            "no error");
}

TEST(FreeNames, AreThoseOfNoFileAndNoLink) {
  const Scratch folder;
  const std::string path = folder.path("log");
  EXPECT_EQ(free_name(path), path + ".1") << "also where nothing has the name itself";
  folder.write("log.1", "");
  std::filesystem::create_symlink("nowhere", path + ".2");
  EXPECT_EQ(free_name(path), path + ".3");
  folder.write("log.3.before", "");
  EXPECT_EQ(free_name(path), path + ".3");
  EXPECT_EQ(free_name(path, ".before"), path + ".4");
}

// A trace of memory is written in the middle of a step.
TEST(WriteWhole, IsACallToTheDiskIfTheFileIsOnOne) {
  const Scratch folder;
  const Descriptor file(::open(folder.path("log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  EXPECT_THAT(counted_calls({SYS_write}, [&] { write_whole(file.get(), "{}", "run.log", "log"); }),
              ElementsAre(SYS_write));
}

TEST(WriteWhole, IsNoneWhereAReaderDecidesHowLongItTakes) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor reader(ends[0]);
  const Descriptor writer(ends[1]);
  std::atomic<bool> counted{true};
  const auto look = [&](const SystemCall&) {
    counted = a_call_to_the_disk_goes_on();
    return kCallerCalls;
  };
  const std::string ended = on_supervised_thread(
      {SYS_write}, look, [&] { write_whole(writer.get(), "{}", "run.log", "pipe"); });
  EXPECT_TRUE(ended == kNoSupervision || !counted) << ended;
}

}  // namespace
}  // namespace zero::testing
