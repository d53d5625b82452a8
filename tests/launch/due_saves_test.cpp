// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// When a run saves, and what is on the disk before a save counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "launch/train/run_lock.h"
#include "tests/device/supervised_thread.h"
#include "tests/launch/cut_run.h"

namespace zero::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Truly;

TEST(DueSaves, AnySaveStartsTheMinutesAgain) {
  const CutRun run;
  run.start({.world = 2,
             .overrides = {"run.checkpoint.every_minutes=30"},
             .started = std::chrono::steady_clock::now() - std::chrono::hours(1)});
  EXPECT_THAT(run.saved(), ElementsAre(6, 1));
}

TEST(DueSaves, TheLogIsOnTheDiskBeforeTheCommit) {
  const CutRun run;
  const std::string log = run.tiny().folder().path("run.log");
  int syncs = 0;
  const auto answer = [&](const SystemCall& asked) -> long {
    const std::string file = "/proc/self/fd/" + std::to_string(asked.arguments[0]);
    if (!std::filesystem::equivalent(file, log)) return asked.run();
    const std::int64_t step = 3 * ++syncs;
    // The line of a save that took long may follow.
    EXPECT_THAT(
        run.tiny().log(),
        Contains(Truly([&](const nlohmann::json& line) { return line.value("step", 0) == step; })))
        << step;
    EXPECT_TRUE(std::filesystem::exists(partial_path(run.folder(), step))) << step;
    EXPECT_FALSE(std::filesystem::exists(partial_path(run.folder(), step) + "/COMMIT")) << step;
    return step == 3 ? asked.run() : -EIO;
  };
  Ended ended;
  const std::string error = on_supervised_thread(SYS_fdatasync, answer, [&] {
    ended = run.start({.overrides = {"run.checkpoint.every_steps=3"}});
  });
  if (error == kNoSupervision) GTEST_SKIP() << error;
  EXPECT_EQ(error, "no error");
  EXPECT_EQ(syncs, 2);
  EXPECT_THAT(run.saved(), ElementsAre(6, 3));
  EXPECT_THAT(ended.out,
              HasSubstr("note: run.log: " + log + " may not be on the disk: Input/output error"));
}

TEST(DueSaves, AFolderThatWasRemovedUnderItsRunIsNotMadeAgain) {
  const CutRun run;
  std::filesystem::create_directory(run.folder());
  const auto lock = lock_checkpoints(run.folder());
  std::filesystem::remove_all(run.folder());
  const std::string why =
      "step_00000006: was not saved: [rank 0] run.checkpoint.folder: " + run.folder() +
      ": the folder was removed or is another run's now: " + run.folder() +
      "/LOCK is not this run's any more";
  for (const int world : {1, 2}) {
    const std::string error = run.refusal({.world = world, .folder_lock = lock.get()});
    EXPECT_THAT(error, HasSubstr(why)) << world;
    EXPECT_FALSE(std::filesystem::exists(run.folder())) << world;
  }
  const Ended ended =
      run.start({.overrides = {"run.checkpoint.required=false"}, .folder_lock = lock.get()});
  EXPECT_THAT(ended.out, HasSubstr("warning: " + run.folder() + "/" + why));
  EXPECT_FALSE(std::filesystem::exists(run.folder()));
  // Another run's: it has a lock of its own there.
  std::filesystem::create_directory(run.folder());
  const auto other = lock_checkpoints(run.folder());
  EXPECT_THAT(run.refusal({.folder_lock = lock.get()}), HasSubstr(why));
  EXPECT_EQ(run.refusal({.folder_lock = other.get()}), "no error");
  EXPECT_THAT(run.saved(), ElementsAre(6));
}

}  // namespace
}  // namespace zero::testing
