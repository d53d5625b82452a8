// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/last_words.h"

#include <gtest/gtest.h>

#include <string>

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
  const std::string first = "ended because rank 4 told of a fault and ended";
  EXPECT_EQ(words_behind("ended by an error: no room", "rank 4"), first);
  EXPECT_EQ(words_behind("rank 3 has not entered X\n", "rank 4"), first);
  EXPECT_EQ(words_behind(first, "rank 5"), first);
  const std::string host = "ended because rank 0 on host a told why";
  EXPECT_EQ(words_behind(host + "\nfailed itself: no disk", "rank 4"), host);
}

TEST(LastWords, TellAnErrorOfTheRanksOwnFromOneOfACollective) {
  EXPECT_FALSE(is_of_collective("[rank 2] /ck/step_4: No space left on device"));
  EXPECT_FALSE(is_of_collective("[rank 2] run.faults: thrown on purpose at step 4, update"));
  EXPECT_FALSE(is_of_collective("std::bad_alloc"));
  EXPECT_TRUE(is_of_collective("[rank 2] all_gather(h.1): rank 1 (process 7) has ended"));
  EXPECT_TRUE(is_of_collective("[rank 2] rank 1 calls barrier(x), the other 7 ranks barrier(y)"));
  EXPECT_TRUE(is_of_collective("[rank 2] step: the group has failed: rank 1 has left"));
  EXPECT_EQ(own_error("ended by an error: a\nfailed itself: b"), "") << "its message";
  EXPECT_EQ(own_error("ended because x\nfailed itself: a\nfailed itself: b"),
            "a\nfailed itself: b");
  EXPECT_EQ(without_own_error("rank 1 hangs\n\nfailed itself: a"), "rank 1 hangs");
}

}  // namespace
}  // namespace zero::testing
