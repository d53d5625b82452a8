// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "launch/faults/fault_injector.h"
#include "launch/faults/fault_marks.h"
#include "tests/errors.h"
#include "tests/launch/recorded_actions.h"
#include "tests/launch/told_faults.h"
#include "tests/scratch.h"

// A job that is started again after a fault does not meet it again.
namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FaultAttempts, AFaultActsOnceOverThem) {
  const Scratch folder;
  const FaultOptions options{.listed = {kill_at(FaultPhase::update, 3)},
                             .marks = folder.path("marks")};
  for (int attempt = 0; attempt < 2; ++attempt) {
    RecordedActions record;
    FaultInjector faults(options, kFaultyRank, 8, record.actions());
    ToldFaults(faults).run(2, 4);
    EXPECT_EQ(record.take().size(), attempt == 0 ? 1U : 0U);
    const std::string said = attempt == 0 ? "kill at step 3, update"
                                          : "kill acts no more: an earlier attempt has left " +
                                                folder.path("marks/fault_0");
    EXPECT_THAT(record.said(), ElementsAre(HasSubstr("rank 3: " + said)));
  }
  EXPECT_EQ(folder.read("marks/fault_0"), "run.faults: rank 3: kill at step 3, update\n");
}

TEST(FaultAttempts, WithoutMarksEachMeetsTheFault) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    RecordedActions record;
    FaultInjector faults({.listed = {kill_at(FaultPhase::update, 3)}}, kFaultyRank, 8,
                         record.actions());
    ToldFaults(faults).run(1, 4);
    EXPECT_EQ(record.take().size(), 1U);
  }
}

TEST(FaultAttempts, OneBehindTheStepDoesNotMeetIt) {
  for (const FaultPhase phase : {FaultPhase::update, FaultPhase::save}) {
    RecordedActions record;
    {
      FaultInjector faults({.listed = {kill_at(phase, 3)}}, kFaultyRank, 8, record.actions());
      ToldFaults(faults).run(5, 6);
    }
    EXPECT_THAT(record.take(), IsEmpty());
    EXPECT_THAT(record.said(), IsEmpty());
  }
}

TEST(FaultAttempts, MarksThatCannotBeMadeAreAnError) {
  const Scratch folder;
  const std::string file = folder.write("marks", "");
  EXPECT_THAT(error_of([&] {
                FaultInjector({.listed = {kill_at(FaultPhase::update, 1)}, .marks = file}, 0, 1);
              }),
              HasSubstr("run.fault_marks: " + file));
  const FaultMarks marks(folder.path("gone"));
  std::filesystem::remove(folder.path("gone"));
  EXPECT_THAT(error_of([&] { marks.leave("fault_0", "x"); }),
              HasSubstr("gone/fault_0: cannot be made: No such file or directory; give a folder"));
}

/// Steps of a second each, told to all ranks of a job on one clock; gives who was killed when.
std::vector<std::string> drawn_kills(const FaultOptions& options, int world, int seconds) {
  RecordedActions record;
  std::vector<std::unique_ptr<FaultInjector>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(std::make_unique<FaultInjector>(options, rank, world, record.actions()));
  }
  for (std::int64_t second = 1; second <= seconds; ++second) {
    for (auto& rank : ranks) ToldFaults(*rank).step(second);
    record.pass(1);
  }
  return record.said();
}

TEST(FaultAttempts, DrawnFaultsActOneByOneOverRanksAndAttempts) {
  const Scratch folder;
  const FaultOptions options{
      .drawn = DrawnFaults{.seed = 3, .every = 10, .kinds = {FaultKind::kill}},
      .marks = folder.path("marks")};
  EXPECT_THAT(drawn_kills(options, 4, 9), IsEmpty());
  const std::vector<std::string> first = drawn_kills(options, 4, 31);
  ASSERT_EQ(first.size(), 3U);
  for (std::int64_t n = 0; n < 3; ++n) {
    const Fault fault = drawn_fault(*options.drawn, n, 4);
    EXPECT_THAT(first[static_cast<std::size_t>(n)],
                HasSubstr(fmt::format("rank {}: kill at step {},", fault.rank, 10 * (n + 1) + 1)));
  }
  EXPECT_THAT(folder.names(), ElementsAre("marks"));
  const std::vector<std::string> second = drawn_kills(options, 4, 11);
  ASSERT_EQ(second.size(), 1U);  // number 3, ten seconds behind the start of its attempt
  EXPECT_THAT(second[0], HasSubstr(fmt::format("rank {}: kill at step 11,",
                                               drawn_fault(*options.drawn, 3, 4).rank)));
  EXPECT_EQ(FaultMarks(folder.path("marks")).next_number("drawn"), 4);
}

}  // namespace
}  // namespace zero::testing
