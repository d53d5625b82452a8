// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// When a run saves, and what is on the disk before a save counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/device/supervised_thread.h"
#include "tests/launch/cut_run.h"

namespace zero {
namespace {

using testing::CutRun;
using ::testing::ElementsAre;
using testing::Ended;
using ::testing::HasSubstr;

TEST(DueSaves, AnySaveStartsTheMinutesAgain) {
  const CutRun run;
  run.start({.world = 2,
             .overrides = {"run.checkpoint.every_minutes=30"},
             .started = std::chrono::steady_clock::now() - std::chrono::hours(1)});
  EXPECT_THAT(run.saved(), ElementsAre(6, 1));
}

TEST(DueSaves, TheLogIsOnTheDiskBeforeTheCommit) {
  const CutRun run;
  const std::string log = run.tiny().folder().file("run.log");
  std::vector<std::string> last_lines;
  const auto answer = [&](const testing::SystemCall& asked) -> long {
    const auto file =
        std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(asked.arguments[0]));
    if (file != log) return asked.run();
    last_lines.push_back(run.tiny().log().back().dump());
    const std::int64_t step = 3 * std::ssize(last_lines);
    EXPECT_TRUE(std::filesystem::exists(partial_path(run.folder(), step))) << step;
    EXPECT_FALSE(std::filesystem::exists(partial_path(run.folder(), step) + "/COMMIT")) << step;
    return step == 3 ? asked.run() : -EIO;
  };
  Ended ended;
  const std::string error = testing::on_supervised_thread(SYS_fdatasync, answer, [&] {
    ended = run.start({.overrides = {"run.checkpoint.every_steps=3"}});
  });
  if (error == testing::kNoSupervision) GTEST_SKIP() << error;
  EXPECT_EQ(error, "no error");
  ASSERT_EQ(last_lines.size(), 2U);
  EXPECT_THAT(last_lines[1], HasSubstr("\"step\":6,"));
  EXPECT_THAT(run.saved(), ElementsAre(6, 3));
  EXPECT_THAT(ended.out,
              HasSubstr("note: run.log: " + log + " may not be on the disk: Input/output error"));
}

}  // namespace
}  // namespace zero
