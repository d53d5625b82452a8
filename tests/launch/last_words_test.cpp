// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/last_words.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/launch/flight_states.h"

namespace zero::testing {
namespace {

TEST(LastWords, ADeathIsToldAsFarAsOthersCanKnow) {
  const std::string unknown = "ended without a word: by SIGKILL, a crash or the like";
  EXPECT_EQ(death_text("", {}, {}), unknown);
  EXPECT_EQ(death_text("", 3, 3), unknown);
  EXPECT_EQ(death_text("", {}, 4), unknown);
  EXPECT_EQ(death_text("", 3, 4), "ended by the kernel's out-of-memory killer");
  EXPECT_EQ(death_text("ended by SIGTERM", 3, 4), "ended by SIGTERM");
}

// A rank that followed told nobody: who follows it says whom it followed.
TEST(LastWords, OfARankThatFollowsNameTheOneThatTold) {
  const LastWords first = follower_words("ended because rank 4 told of a fault and ended");
  EXPECT_EQ(words_behind(error_words("no room"), "rank 4"), first);
  EXPECT_EQ(words_behind(finding_words(), "rank 4"), first);
  EXPECT_EQ(words_behind(first, "rank 5"), first);
  LastWords outrun = first;
  outrun.own_error = "no disk";
  EXPECT_EQ(words_behind(outrun, "rank 5"), first);
}

// Whose end another rank's watchdog tells, and who may have been sent the same signal.
TEST(LastWords, SayWhetherSomebodyHasToldAndWhetherOfASignal) {
  using Kind = LastWords::Kind;
  for (int kind = 0; kind <= static_cast<int>(LastWords::kLastKind); ++kind) {
    const LastWords words{.kind = static_cast<Kind>(kind), .text = "x"};
    const std::set<Kind> untold{Kind::none, Kind::own_error, Kind::signal};
    const std::set<Kind> signals{Kind::signal, Kind::told_signal, Kind::signal_finding};
    EXPECT_EQ(words.is_told(), !untold.contains(words.kind)) << kind;
    EXPECT_EQ(words.is_of_signal(), signals.contains(words.kind)) << kind;
    EXPECT_EQ(words.says_why(), words.kind != Kind::follower) << kind;
  }
  EXPECT_FALSE(outrun_words("no room").says_why());
}

TEST(LastWords, TellAnErrorOfTheRanksOwnFromOneOfACollective) {
  EXPECT_FALSE(is_of_collective("[rank 2] /ck/step_4: No space left on device"));
  EXPECT_FALSE(is_of_collective("[rank 2] run.faults: thrown on purpose at step 4, update"));
  EXPECT_FALSE(is_of_collective("std::bad_alloc"));
  EXPECT_TRUE(is_of_collective("[rank 2] all_gather(h.1): rank 1 (process 7) has ended"));
  EXPECT_TRUE(is_of_collective("[rank 2] rank 1 calls barrier(x), the other 7 ranks barrier(y)"));
  EXPECT_TRUE(is_of_collective("[rank 2] step: the group has failed: rank 1 has left"));
}

}  // namespace
}  // namespace zero::testing
