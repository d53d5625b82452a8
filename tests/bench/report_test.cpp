// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "bench/timing.h"
#include "launch/process/subprocess.h"

namespace zero::bench {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void add_two_rows(Report& report) {
  report.add({.section = "limits",
              .name = "all_gather",
              .ranks = 4,
              .bytes = 16 << 20,
              .dtype = "bf16",
              .value = 3,
              .best = 4,
              .unit = "GB/s",
              .limit = 6});
  report.add({.section = "limits", .name = "memory copy", .value = 10, .best = 11, .unit = "GB/s"});
  report.note("no bf16 here");
}

TEST(Reports, JsonHasEveryFieldAndNullWhereNothingIsKnown) {
  Report report;
  add_two_rows(report);
  const auto rows = nlohmann::json::parse(report.json());
  ASSERT_EQ(2U, rows.size());
  EXPECT_EQ((nlohmann::json{{"section", "limits"},
                            {"name", "all_gather"},
                            {"ranks", 4},
                            {"bytes", 16 << 20},
                            {"dtype", "bf16"},
                            {"value", 3.0},
                            {"best", 4.0},
                            {"unit", "GB/s"},
                            {"limit", 6.0},
                            {"ratio", 0.5}}),
            rows[0]);
  EXPECT_TRUE(rows[1]["dtype"].is_null());
  EXPECT_TRUE(rows[1]["limit"].is_null());
  EXPECT_TRUE(rows[1]["ratio"].is_null());
}

TEST(Reports, RowsAndNotesArePrintedAsTheyComeUnderOneHead) {
  std::vector<std::string> printed;
  Report report([&](const std::string& lines, const Report& all) {
    printed.push_back(lines);
    EXPECT_EQ(all.rows().size(), std::min<std::size_t>(printed.size(), 2));
  });
  add_two_rows(report);
  ASSERT_EQ(printed.size(), 3U);
  EXPECT_THAT(printed[0], AllOf(StartsWith("section "), HasSubstr("\nlimits       all_gather"),
                                HasSubstr("16 MiB"), EndsWith("  0.50\n")));
  EXPECT_THAT(printed[1], AllOf(StartsWith("limits       memory copy"), EndsWith("-      -\n")));
  EXPECT_EQ(printed[2], "no bf16 here\n");
}

TEST(Reports, AFileThatCannotBeWrittenIsNamed) {
  try {
    write_file("/nonexistent/rows.json", "[]");
    FAIL() << "written";
  } catch (const Error& error) {
    EXPECT_STREQ(
        "cannot write /nonexistent/rows.json: No such file or directory; give a writable file to "
        "--json",
        error.what());
  }
}

TEST(Programs, LeaveOutputErrorsAndStatus) {
  const Finished finished = run_command({"sh", "-c", "echo out; echo err >&2; exit 3"});
  EXPECT_EQ(3, finished.status);
  EXPECT_EQ("out\n", finished.output);
  EXPECT_EQ("err\n", finished.errors);
  EXPECT_EQ(128 + 9, run_command({"sh", "-c", "kill -9 $$"}).status);
  EXPECT_THROW(run_command({"/nonexistent/program"}), Error);
}

TEST(Programs, SayWhyTheyFailed) {
  EXPECT_EQ(
      "ModuleNotFoundError: No module named 'deepspeed'",
      reason_in({.errors = "Traceback\nModuleNotFoundError: No module named 'deepspeed'\nbye\n"}));
  // A launcher's errors come behind those of the program that it started.
  EXPECT_EQ("zero_train: no file c.json",
            reason_in({.errors = "zero_train: no file c.json\nTraceback\nChildFailedError: \n"}));
  EXPECT_EQ("last", reason_in({.errors = "first\nlast\n-----\n"}));
  EXPECT_EQ("printed", reason_in({.output = "printed\n"}));
  EXPECT_EQ("", reason_in({}));
}

TEST(Timings, BestAndMedianOfTheSamples) {
  const Timing timing = summary({3.0, 1.0, 2.0});
  EXPECT_EQ(1.0, timing.best);
  EXPECT_EQ(2.0, timing.median);
  EXPECT_EQ(4.0, median_rate({1.0, 8.0, 4.0, 6.0}));
}

TEST(Turns, SharesAreOfTheLimitsBesideThem) {
  const Turns turns{{4.5, 8.0, 9.0}, {5.0, 5.0, 10.0, 10.0}};
  EXPECT_DOUBLE_EQ(0.9, turns.share());  // 0.9, 16/15 and 0.9
  EXPECT_DOUBLE_EQ(0.9, turns.best_share());
}

TEST(Timings, InterleavedCasesRunInTurnAfterAWarmUp) {
  std::string order;
  const std::array<std::function<void()>, 2> cases{[&] { order += 'a'; }, [&] { order += 'b'; }};
  EXPECT_EQ(2U, interleaved(cases, 2).size());
  EXPECT_EQ("ababab", order);
}

}  // namespace
}  // namespace zero::bench
