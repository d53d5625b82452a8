// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/wait_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/watch/diagnosis.h"
#include "tests/launch/flight_states.h"

namespace zero::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using What = Diagnosis::What;

TEST(WaitGraph, GroupsOfEqualNameAndOtherRanksAreOtherGroups) {
  // Each is the first of its own group, and nobody contradicts anybody.
  const std::vector<FlightState> ranks{
      StateMaker(0, 4).in("all_gather(x)", 1, 100, "shard", {0, 1}),
      StateMaker(2, 4).in("barrier(y)", 1, 100, "shard", {2, 3})};
  const Diagnosis found = diagnose(ranks, {}, clock_at(103));
  EXPECT_EQ(found.what, What::hang);
  EXPECT_THAT(found.culprits, ElementsAre(1, 3));
}

TEST(WaitGraph, GroupsThatNobodyNamedAreNotJudged) {
  FlightState state = StateMaker(0, 2).in("split", 1, 100);
  state.open[0].ranks.clear();
  const std::vector<FlightState> states{state};
  const WaitGraph waits(states);
  EXPECT_THAT(waits.all(), IsEmpty());
  EXPECT_THAT(waits.unended(), IsEmpty());
  EXPECT_EQ(waits.state_of(1), nullptr);
}

TEST(WaitGraph, TheDeadWaitForNobody) {
  const std::vector<FlightState> ranks{StateMaker(0, 3).in("all_gather(x)", 7, 102),
                                       StateMaker(1, 3).in("all_gather(x)", 7, 100),
                                       StateMaker(2, 3)};
  const Diagnosis found = diagnose(ranks, std::vector<RankDeath>{{1, "ended"}}, clock_at(103));
  ASSERT_EQ(found.lines.size(), 2U);
  EXPECT_EQ(found.lines[1],
            "rank 0 has waited for 1.0 s in all_gather(x) #7 of group shard, for "
            "rank 2");
}

TEST(WaitGraph, ManyWaitsAreCounted) {
  std::vector<FlightState> ranks;
  for (int rank = 0; rank < 40; rank += 2) {
    ranks.push_back(StateMaker(rank, 40).in("all_reduce(x)", 1, 100, "tensor", {rank, rank + 1}));
  }
  EXPECT_THAT(diagnose(ranks, {}, clock_at(103)).lines, Contains("and 7 more waits"));
}

std::string longest_of(const std::vector<FlightState>& ranks) {
  return longest_wait(ranks, clock_at(103.2)).line;
}

TEST(LongestWait, SaysInOneLineForWhomRanksWait) {
  EXPECT_THAT(
      longest_of({StateMaker(0, 3).step(-1).in("split", 1, 90, "world"), StateMaker(1, 3).step(-1),
                  StateMaker(2, 3).step(-1).in("split", 1, 103, "world")}),
      "ranks 0, 2 have waited for 13.2 s for rank 1, which is in \"backward\" "
      "before the first step");
  // Rank 0 waits for rank 2, which waits for rank 3.
  EXPECT_THAT(longest_of({StateMaker(0, 4).in("a", 1, 102, "shard", {0, 2}), StateMaker(1, 4),
                          StateMaker(2, 4).in("b", 1, 101, "tensor", {2, 3}), StateMaker(3, 4)}),
              "ranks 0, 2 have waited for 2.2 s for rank 3, which is in \"backward\" of "
              "step 812");
  EXPECT_THAT(longest_of({StateMaker(0, 3).in("a", 1, 101), StateMaker(1, 3), StateMaker(2, 3)}),
              "rank 0 has waited for 2.2 s for ranks 1-2");
}

// Of a host that is not linked: they may have come.
TEST(LongestWait, BlamesRanksThatAreNotSeenOnlyIfNoOtherHoldsUp) {
  EXPECT_THAT(longest_of({StateMaker(0, 4).in("a", 1, 100), StateMaker(1, 4)}),
              "rank 0 has waited for 3.2 s for rank 1, which is in \"backward\" of step "
              "812");
  EXPECT_THAT(longest_of({StateMaker(0, 2).in("a", 1, 100)}),
              "rank 0 has waited for 3.2 s for rank 1, which is not seen from here");
  EXPECT_THAT(longest_of({StateMaker(0, 4).in("a", 1, 100), StateMaker(1, 4).in("a", 1, 101)}),
              "ranks 0-1 have waited for 3.2 s for ranks 2-3, which are not seen from here");
}

TEST(LongestWait, SaysWhatElseIsKnownOfTheRank) {
  const FlightState waits = StateMaker(0, 2).in("a", 1, 100);
  EXPECT_THAT(longest_of({waits, StateMaker(1, 2).over()}),
              "rank 0 has waited for 3.2 s for rank 1, which has ended in good order");
  EXPECT_THAT(longest_of({waits, StateMaker(1, 2).seen(101).stopped()}),
              "rank 0 has waited for 3.2 s for rank 1, which was last seen 2.2 s ago in "
              "\"backward\" of step 812; its process is stopped (a signal or a debugger)");
}

TEST(LongestWait, SaysNothingWhereNobodyIsToBlame) {
  EXPECT_THAT(longest_of({StateMaker(0, 2).in("a", 1, 100), StateMaker(1, 2).in("a", 1, 101)}),
              IsEmpty())
      << "all have come";
  EXPECT_THAT(longest_of({StateMaker(0, 2), StateMaker(1, 2)}), IsEmpty());
  EXPECT_THAT(longest_of({}), IsEmpty());
}

}  // namespace
}  // namespace zero::testing
