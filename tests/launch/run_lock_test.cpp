// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_lock.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <optional>

#include "base/host.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

RunLock::Place place_in(const Scratch& folder) {
  return {.key = "run.checkpoint.folder", .path = "runs/a", .file = folder.path("LOCK")};
}

std::string refusal(const RunLock::Place& place) {
  return error_of([&] { const RunLock lock(place, milliseconds(0)); });
}

/// A process that has a lock, until it is killed or told to end.
class Holder {
 public:
  explicit Holder(const RunLock::Place& place) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    child_ = ::fork();
    if (child_ == 0) {
      const RunLock lock(place);
      static_cast<void>(!::write(ready[1], "x", 1));
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() { kill(); }

  pid_t process() const { return child_; }
  void kill() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
};

TEST(RunLock, RefusesASecondProcessByNameOfTheFirst) {
  const Scratch folder;
  const RunLock::Place place = place_in(folder);
  Holder holder(place);
  EXPECT_THAT(refusal(place),
              AllOf(HasSubstr(fmt::format("run.checkpoint.folder: runs/a is another run's: process "
                                          "{} on host {}, since 2",
                                          holder.process(), host_name())),
                    HasSubstr("UTC, writes there; end that run or wait for its end, or give this "
                              "one another run.checkpoint.folder (if its host is gone for good, "
                              "remove " +
                              place.file + ")")));
  EXPECT_TRUE(std::filesystem::exists(place.file));
}

TEST(RunLock, RefusesAProcessOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "takes root, who may become another user";
  constexpr uid_t kNobody = 65534;
  const Scratch folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const RunLock::Place place = place_in(folder);
  const RunLock lock(place);
  const auto take_and_end = [&] {
    ::_exit(::setuid(kNobody) == 0 && refusal(place).find("another run's") != std::string::npos
                ? 0
                : 1);
  };
  EXPECT_EXIT(take_and_end(), ::testing::ExitedWithCode(0), "");
}

// Whatever lies under the lock's name: a pipe that may only be read has no other end to wait for.
TEST(RunLock, WaitsForNoPipe) {
  if (::geteuid() != 0) GTEST_SKIP() << "takes root, who may become another user";
  constexpr uid_t kNobody = 65534;
  const Scratch folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const RunLock::Place place = place_in(folder);
  ASSERT_EQ(::mkfifo(place.file.c_str(), 0444), 0);
  const auto take_and_end = [&] {
    ::alarm(60);
    ::_exit(::setuid(kNobody) == 0 && refusal(place) == "no error" ? 0 : 1);
  };
  EXPECT_EXIT(take_and_end(), ::testing::ExitedWithCode(0), "");
}

TEST(RunLock, EndsWithItsProcessHoweverThatEnds) {
  const Scratch folder;
  const RunLock::Place place = place_in(folder);
  Holder holder(place);
  holder.kill();
  EXPECT_TRUE(std::filesystem::exists(place.file));
  {
    const RunLock next(place, milliseconds(0));
    EXPECT_EQ(next.warning(), "");
    EXPECT_THAT(folder.read("LOCK"), HasSubstr(fmt::format("process {} on", ::getpid())));
    EXPECT_THAT(refusal(place), HasSubstr("is another run's")) << "two runs of one process";
  }
  EXPECT_FALSE(std::filesystem::exists(place.file));
}

TEST(RunLock, OfAFileThatWasRemovedLeavesTheNextOneAlone) {
  const Scratch folder;
  const RunLock::Place place = place_in(folder);
  std::optional<RunLock> first(place);
  std::filesystem::remove(place.file);
  const RunLock second(place, milliseconds(0));
  second.check();
  EXPECT_EQ(error_of([&] { first->check(); }),
            "run.checkpoint.folder: runs/a: the folder was removed or is another run's now: " +
                place.file +
                " is not this run's any more; start this one again, with another "
                "run.checkpoint.folder if another run has that one");
  first.reset();
  EXPECT_THAT(refusal(place), HasSubstr("is another run's"));
}

TEST(RunLock, ThatCannotBeHadIsAWarning) {
  const Scratch folder;
  const RunLock lock({.key = "run.log", .path = "a.log", .file = folder.path("none/LOCK")});
  EXPECT_THAT(lock.warning(),
              HasSubstr("none/LOCK cannot be locked: No such file or directory: a second run that "
                        "writes to a.log is not noticed"));
  EXPECT_EQ(error_of([&] { lock.check(); }), "no error");
}

TEST(RunLock, OfALogIsThatOfTheFileItLeadsTo) {
  const Scratch folder;
  folder.write("run.log", "");
  std::filesystem::create_symlink("run.log", folder.path("link"));
  const auto first = lock_log(folder.path("run.log"));
  EXPECT_THAT(error_of([&] { lock_log(folder.path("link")); }),
              HasSubstr("run.log: " + folder.path("link") + " is another run's"));
  std::filesystem::create_directory(folder.path("other"));
  std::filesystem::create_symlink("other/../new.log", folder.path("dangling"));
  std::filesystem::create_symlink("dangling", folder.path("twice"));
  const auto of_nothing = lock_log(folder.path("twice"));
  for (const char* name : {"new.log", "dangling"}) {
    EXPECT_THAT(error_of([&] { lock_log(folder.path(name)); }),
                HasSubstr("run.log: " + folder.path(name) + " is another run's"));
  }
  std::filesystem::create_symlink("loop", folder.path("loop"));
  EXPECT_NE(lock_log(folder.path("loop")), nullptr);
  EXPECT_EQ(lock_log("/dev/null"), nullptr);
  EXPECT_EQ(lock_log(""), nullptr);
  EXPECT_EQ(lock_checkpoints({}), nullptr);
}

}  // namespace
}  // namespace zero::testing
