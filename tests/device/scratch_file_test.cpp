// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/file_system.h"
#include "tests/device/restricted_thread.h"
#include "tests/device/supervised_thread.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::files {
namespace {

using testing::give_up_root;
using testing::on_own_thread;
using testing::refuse;
using testing::Scratch;
using ::testing::StartsWith;
using zero::error_of;

constexpr std::uint32_t kNameless = O_TMPFILE & ~O_DIRECTORY;  // the bit that is its own

std::string text_of(InputFile& file, std::int64_t offset, std::size_t count) {
  std::string found(count, '?');
  file.read(offset, std::as_writable_bytes(std::span(found)));
  return found;
}

/// Writes by one end, reads by the other.
void use_both_ends(const ScratchFile& file) {
  EXPECT_EQ(text_of(*file.input, 0, 10), std::string(10, '\0'));
  file.output->write(3, std::as_bytes(std::span(std::string_view("abc"))));
  EXPECT_EQ(text_of(*file.input, 0, 10), std::string("\0\0\0abc\0\0\0\0", 10));
}

TEST(ScratchFiles, HaveTwoEndsAndNoName) {
  const Scratch scratch;
  const ScratchFile one = disk().create_scratch(scratch.path(), 10);
  const ScratchFile two = disk().create_scratch(scratch.path(), 10);
  EXPECT_EQ(scratch.names(), std::vector<std::string>());
  EXPECT_EQ(one.output->path(), scratch.path("(no name)"));
  EXPECT_EQ(one.input->path(), scratch.path("(no name)"));
  EXPECT_EQ(one.input->size(), 10);
  use_both_ends(one);
  use_both_ends(two);
  EXPECT_EQ(error_of([&] { text_of(*one.input, 8, 3); }),
            scratch.path("(no name)") +
                ": ends at offset 10, expected 1 more bytes there: the file was cut");
}

TEST(ScratchFiles, TakeTheirSpaceWhenTheyAreMadeAndGiveItBackWithTheLastEnd) {
  const Scratch scratch;
  EXPECT_EQ(on_own_thread([&] {
              if (!testing::mount_small_disk(scratch.path(), 4 << 20)) {
                GTEST_SKIP() << "no right to mount a small disk";
              }
              ScratchFile file = disk().create_scratch(scratch.path(), 3 << 20);
              const auto make = [&] { disk().create_scratch(scratch.path(), 2 << 20); };
              const std::string full = scratch.path("(no name)") +
                                       ": cannot make room for 2097152 bytes: No space left on "
                                       "device";
              EXPECT_EQ(error_of(make), full);
              file.output.reset();
              EXPECT_EQ(error_of(make), full);
              file.input.reset();
              EXPECT_EQ(error_of(make), "no error");
            }),
            "no error");
}

TEST(ScratchFiles, LoseTheirNameAtOnceWhereNoneAreMadeWithout) {
  for (const int error : {EOPNOTSUPP, EISDIR, ENOENT, EINVAL}) {
    const Scratch scratch;
    int named = 0;
    const auto without = [&](const testing::SystemCall& asked) -> long {
      if ((asked.arguments[2] & kNameless) != 0) return -error;
      named += (asked.arguments[2] & O_CREAT) != 0 ? 1 : 0;
      return asked.run();
    };
    const std::string ended = testing::on_supervised_thread(SYS_openat, without, [&] {
      const ScratchFile file = disk().create_scratch(scratch.path(), 10);
      EXPECT_EQ(scratch.names(), std::vector<std::string>());
      use_both_ends(file);
    });
    if (ended == testing::kNoSupervision) GTEST_SKIP() << ended;
    EXPECT_EQ(ended, "no error");
    EXPECT_EQ(named, 1);
  }
}

TEST(ScratchFiles, ThatCannotBeMadeNameTheFolderAndTheReason) {
  Scratch scratch;
  const auto make = [&] { disk().create_scratch(scratch.path(), 10); };
  EXPECT_EQ(error_of([&] { disk().create_scratch(scratch.path("none"), 10); }),
            scratch.path("none") + ": cannot make a file there: No such file or directory");
  EXPECT_EQ(error_of([&] { disk().create_scratch(scratch.write("file", ""), 10); }),
            scratch.path("file") + ": cannot make a file there: Not a directory");
  const std::string nameless = scratch.path("(no name)");
  EXPECT_EQ(error_of([&] { disk().create_scratch(scratch.path(), -1); }),
            nameless + ": cannot make room for -1 bytes: Invalid argument");
  EXPECT_EQ(on_own_thread([&] {
              constexpr std::uint32_t kLinux = 1024;  // of F_DUPFD_CLOEXEC, not of F_SETFL
              ASSERT_TRUE(refuse({SYS_fcntl, EMFILE, 1, kLinux}));
              EXPECT_EQ(error_of(make),
                        nameless + ": cannot open for reading: Too many open files");
            }),
            "no error");
  {
    const testing::FileSizeLimit limit(6);
    EXPECT_EQ(error_of(make), nameless + ": cannot make room for 10 bytes: File too large");
  }
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0500), 0);
  EXPECT_EQ(on_own_thread([&] {
              if (give_up_root()) make();
            }),
            scratch.path() + ": cannot make a file there: Permission denied");
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0700), 0);
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"file"});
}

// A program that only uses the library has the default action for SIGXFSZ, which ends it.
TEST(ScratchFiles, LongerThanAProcessMayWriteRaiseNoSignal) {
  static volatile std::sig_atomic_t raised = 0;
  const Scratch scratch;
  const testing::FileSizeLimit limit(5000);
  std::signal(SIGXFSZ, [](int) { raised = 1; });
  const std::string room = ": cannot make room for 5001 bytes: File too large";
  EXPECT_EQ(error_of([&] { disk().create_scratch(scratch.path(), 5001); }),
            scratch.path("(no name)") + room);
  EXPECT_EQ(error_of([&] { disk().create(scratch.path("named"), 5001); }),
            scratch.path("named") + room);
  EXPECT_EQ(error_of([&] { disk().create_scratch(scratch.path(), 5000); }), "no error");
  EXPECT_EQ(raised, 0);
}

/// The system call that architectures before 64-bit ARM have beside unlinkat.
bool refuse_unlink() {
#ifdef SYS_unlink
  return refuse({SYS_unlink, EPERM, 0, 0});
#else
  return true;
#endif
}

TEST(ScratchFiles, WhoseNameCannotBeRemovedAreNamed) {
  const Scratch scratch;
  EXPECT_EQ(on_own_thread([&] {
              ASSERT_TRUE(refuse({SYS_openat, EOPNOTSUPP, 2, kNameless}));
              ASSERT_TRUE(refuse({SYS_unlinkat, EPERM, 0, 0}));
              ASSERT_TRUE(refuse_unlink());
              const std::string found =
                  error_of([&] { disk().create_scratch(scratch.path(), 10); });
              ASSERT_EQ(scratch.names().size(), 1);
              EXPECT_THAT(scratch.names()[0], StartsWith(".zero-" + std::to_string(::getpid())));
              EXPECT_EQ(found, scratch.path(scratch.names()[0]) +
                                   ": cannot remove the file: Operation not permitted");
            }),
            "no error");
}

}  // namespace
}  // namespace zero::files
