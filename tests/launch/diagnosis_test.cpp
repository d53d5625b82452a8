// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "launch/watch/fault_finder.h"
#include "launch/watch/wait_graph.h"
#include "tests/launch/flight_states.h"

namespace zero::testing {
namespace {

using ::testing::IsEmpty;
using What = Diagnosis::What;

/// What the ranks of a job show at 103.2 s.
struct Case {
  const char* name;
  std::vector<FlightState> ranks;
  std::vector<RankDeath> deaths;
  What what;
  std::vector<int> culprits;
  std::vector<std::string> lines;  // each is part of some line, in this order
};

std::string joined(const Diagnosis& diagnosis) {
  std::string text;
  for (const std::string& line : diagnosis.lines) text += line + "\n";
  return text;
}

StateMaker waiting(int rank, double since = 100) {
  return StateMaker(rank).ended("all_gather(h.6)", 1840, 99).in("reduce_scatter(h.7)", 1841, since);
}

std::vector<FlightState> all_waiting_but(int culprit, const FlightState& its) {
  std::vector<FlightState> ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.push_back(rank == culprit ? its : FlightState(waiting(rank)));
  }
  return ranks;
}

/// Tensor groups {0,1}, {2,3}, ... and shard groups {0,2,4,6}, {1,3,5,7}.
std::vector<int> tensor_of(int rank) { return {rank / 2 * 2, rank / 2 * 2 + 1}; }
std::vector<int> shard_of(int rank) { return {rank % 2, rank % 2 + 2, rank % 2 + 4, rank % 2 + 6}; }

StateMaker in_tensor(int rank) {
  return StateMaker(rank).in("all_reduce(h.7)", 50, 101, "tensor", tensor_of(rank));
}

StateMaker in_shard(int rank) {
  return StateMaker(rank).in("reduce_scatter(h.7)", 9, 102, "shard", shard_of(rank));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  all.push_back({"LoopInCompute",
                 all_waiting_but(
                     3, StateMaker(3).ended("all_gather(h.6)", 1840, 99).stack("#0 gelu\n#1 main")),
                 {},
                 What::hang,
                 {3},
                 {"rank 3 has not entered reduce_scatter(h.7) #1841 of group shard of step 812, in "
                  "which ranks 0-2, 4-7 have waited for 3.2 s",
                  "rank 3 is in \"backward\" of step 812; its last compute was backward h.7; its "
                  "last collective, all_gather(h.6) #1840 of group shard, ended 4.2 s ago",
                  "rank 3's stack:", "  #0 gelu", "  #1 main"}});
  all.push_back({"SubmittedButItsStreamHasNotComeThere",
                 all_waiting_but(3, StateMaker(3).submitted("reduce_scatter(h.7)", 1841)),
                 {},
                 What::hang,
                 {3},
                 {"rank 3 has not entered reduce_scatter(h.7) #1841"}});
  all.push_back({"HungInAnEarlierCollective",
                 all_waiting_but(3, StateMaker(3).in("all_gather(h.6)", 1840, 98)),
                 {},
                 What::hang,
                 {3},
                 {"rank 3 has not entered reduce_scatter(h.7) #1841",
                  "it has been in all_gather(h.6) #1840 of group shard for 5.2 s"}});
  all.push_back({"StoppedInTheCollectiveThatOthersWaitIn",
                 all_waiting_but(3, waiting(3).stopped()),
                 {},
                 What::hang,
                 {3},
                 {"rank 3 is in reduce_scatter(h.7) #1841 of group shard of step 812, ranks 0-2, "
                  "4-7 have waited in it for 3.2 s",
                  "its process is stopped"}});
  all.push_back({"StoppedInCompute",
                 all_waiting_but(5, StateMaker(5).stopped()),
                 {},
                 What::hang,
                 {5},
                 {"rank 5 has not entered reduce_scatter(h.7) #1841", "its process is stopped"}});
  all.push_back({"AllHaveComeAndNothingMoves",
                 all_waiting_but(0, waiting(0, 100.5)),
                 {},
                 What::hang,
                 {},
                 {"ranks 0-7 are in reduce_scatter(h.7) #1841 of group shard of step 812 and have "
                  "been for 3.2 s: all have come, and it does not end"}});
  all.push_back({"ARankInAnotherStep",
                 all_waiting_but(2, StateMaker(2).step(811)),
                 {},
                 What::hang,
                 {2},
                 {"rank 2 has not entered", "rank 2 is in \"backward\" of step 811"}});
  all.push_back(
      {"BeforeTheFirstStep",
       {StateMaker(0, 2).step(-1).in("split", 1, 100, "world"), StateMaker(1, 2).step(-1)},
       {},
       What::hang,
       {1},
       {"rank 1 has not entered split #1 of group world before the first step, in which "
        "rank 0 has waited for 3.2 s"}});
  all.push_back({"AMissingFile",
                 {StateMaker(0, 3).in("all_gather(h.0)", 2, 100),
                  StateMaker(1, 3).in("all_gather(h.0)", 2, 100)},
                 {},
                 What::hang,
                 {2},
                 {"rank 2 has not entered all_gather(h.0) #2",
                  "rank 2 is not seen from here: it is on another host, or its flight file"}});
  all.push_back({"ARankThatHasEnded",
                 {StateMaker(0, 2).in("all_gather(h.0)", 2, 100), StateMaker(1, 2).over()},
                 {},
                 What::hang,
                 {1},
                 {"rank 1 has not entered all_gather(h.0) #2", "rank 1 has ended in good order"}});
  all.push_back(
      {"ThroughChainsOfGroups",
       // 7 loops; 6 waits for 7 in tensor, so 0, 2, 4 wait for 6 in shard, and 1, 3, 5
       // for 7; nobody but 7 is to blame.
       {in_shard(0), in_shard(1), in_shard(2), in_shard(3), in_shard(4), in_shard(5), in_tensor(6),
        StateMaker(7)},
       {},
       What::hang,
       {7},
       {"rank 7 has not entered all_reduce(h.7) #50 of group tensor of step 812, in which "
        "rank 6 has waited for 2.2 s",
        "ranks 0, 2, 4 have waited for 1.2 s in reduce_scatter(h.7) #9 of group shard, "
        "for rank 6"}});
  all.push_back(
      {"BehindACollectiveThatDoesNotEnd",
       {StateMaker(0, 4).in("reduce_scatter(h.7)", 9, 102, "shard", {0, 2}),
        StateMaker(1, 4).in("reduce_scatter(h.7)", 9, 102, "shard", {1, 3}),
        StateMaker(2, 4).in("all_reduce(h.7)", 50, 101, "tensor", {2, 3}),
        StateMaker(3, 4).in("all_reduce(h.7)", 50, 101, "tensor", {2, 3})},
       {},
       What::hang,
       {},
       {"ranks 2-3 are in all_reduce(h.7) #50 of group tensor of step 812 and have been for 2.2 s: "
        "all have come, and it does not end",
        "rank 0 has waited for 1.2 s in reduce_scatter(h.7) #9 of group shard, for rank 2",
        "rank 1 has waited for 1.2 s in reduce_scatter(h.7) #9 of group shard, for rank 3"}});
  all.push_back({"TwoLeftBehindInACollective",
                 {StateMaker(0, 4).in("b", 2, 102), StateMaker(1, 4).in("b", 2, 102),
                  StateMaker(2, 4).in("a", 1, 101), StateMaker(3, 4).in("a", 1, 101)},
                 {},
                 What::hang,
                 {},
                 {"ranks 2-3 are in a #1 of group shard of step 812 and have been for 2.2 s",
                  "ranks 0-1 have waited for 1.2 s in b #2 of group shard, for ranks 2-3"}});
  all.push_back(
      {"StoppedInACollectiveBehindWhichOthersWait",
       {StateMaker(0, 4).in("reduce_scatter(h.7)", 9, 102, "shard", {0, 2}),
        StateMaker(1, 4).in("reduce_scatter(h.7)", 9, 102, "shard", {1, 3}),
        StateMaker(2, 4).in("all_reduce(h.7)", 50, 101, "tensor", {2, 3}),
        StateMaker(3, 4).in("all_reduce(h.7)", 50, 101, "tensor", {2, 3}).stopped()},
       {},
       What::hang,
       {3},
       {"rank 3 is in all_reduce(h.7) #50 of group tensor of step 812, rank 2 has waited in it for "
        "2.2 s",
        "its process is stopped", "rank 0 has waited for 1.2 s"}});
  all.push_back({"ACircleBesideACollectiveThatOneRankHasLeft",
                 {StateMaker(0, 4).in("all_gather(a)", 1, 100, "a", {0, 1}).changed(99),
                  StateMaker(1, 4).in("all_gather(b)", 1, 100, "b", {0, 1}),
                  StateMaker(2, 4).ended("all_gather(c)", 1, 99, "c", {2, 3}),
                  StateMaker(3, 4).in("all_gather(c)", 1, 99, "c", {2, 3})},
                 {},
                 What::hang,
                 {0},
                 {"ranks 0-1 wait for each other in a circle"}});
  all.push_back({"TwoAtOnce",
                 {in_tensor(0), StateMaker(1), in_tensor(2), StateMaker(3), in_shard(4),
                  in_shard(5), in_shard(6), in_shard(7)},
                 {},
                 What::hang,
                 {1, 3},
                 {"rank 1 has not entered all_reduce(h.7) #50 of group tensor", "rank 1 is in",
                  "rank 3 is in"}});
  all.push_back({"ACircle",
                 {StateMaker(0, 2).in("all_gather(a)", 1, 100, "a").changed(99),
                  StateMaker(1, 2).in("all_gather(b)", 1, 100, "b")},
                 {},
                 What::hang,
                 {0},
                 {"ranks 0-1 wait for each other in a circle"}});
  all.push_back({"NobodyWaits",
                 {StateMaker(0, 2).changed(103), StateMaker(1, 2).changed(90)},
                 {},
                 What::hang,
                 {1},
                 {"no rank waits for another; rank 1 has done nothing for 13.2 s",
                  "its last compute was backward h.7"}});
  all.push_back({"AllHaveEnded",
                 {StateMaker(0, 2).over(), StateMaker(1, 2).over()},
                 {},
                 What::nothing,
                 {},
                 {}});
  all.push_back({"NoRankAtAll", {}, {}, What::nothing, {}, {}});
  all.push_back(
      {"ADeath",
       all_waiting_but(3, StateMaker(3).in("all_gather(h.6)", 1840, 98)),
       {{3, "ended by signal 9 (SIGKILL)"}},
       What::death,
       {3},
       {"rank 3 ended by signal 9 (SIGKILL); until then it was in \"backward\" of step 812; its "
        "last compute was backward h.7; it had been in all_gather(h.6) #1840 of group "
        "shard for 5.2 s",
        "ranks 0-2, 4-7 have waited for 3.2 s in reduce_scatter(h.7) #1841 of group "
        "shard, for rank 3"}});
  all.push_back(
      {"ADeathOnAnotherHost",
       all_waiting_but(3, StateMaker(3)
                              .in("all_gather(h.6)", 1840, 98)
                              .ended("barrier(x)", 3, 97, "world")
                              .seen(102.8)),
       {{3, "ended without a word"}},
       What::death,
       {3},
       {"rank 3 ended without a word; last seen 0.4 s ago in \"backward\" of step 812; "
        "its last compute was backward h.7; it had been in all_gather(h.6) #1840 of group "
        "shard for 4.8 s; its last collective, barrier(x) #3 of group world, had ended "
        "5.8 s before\n",
        "ranks 0-2, 4-7 have waited for 3.2 s"}});
  all.push_back(
      {"ARankOfAHostThatSaysNothing",
       all_waiting_but(3, StateMaker(3).ended("all_gather(h.6)", 1840, 99).seen(100.2)),
       {},
       What::hang,
       {3},
       {"rank 3 has not entered reduce_scatter(h.7) #1841",
        "rank 3 was last seen 3.0 s ago in \"backward\" of step 812; its last compute was "
        "backward h.7; its last collective, all_gather(h.6) #1840 of group shard, had "
        "ended 1.2 s before\n"}});
  all.push_back({"ADeathWithoutAFile",
                 {StateMaker(0, 2)},
                 {{1, "ended with status 1"}},
                 What::death,
                 {1},
                 {"rank 1 ended with status 1"}});
  all.push_back(
      {"ACollectiveLeftOut",
       all_waiting_but(3, StateMaker(3).in("reduce_scatter(h.6)", 1841, 100)),
       {},
       What::mismatch,
       {3},
       {"collective #1841 of group shard differs: rank 3 is in reduce_scatter(h.6), ranks "
        "0-2, 4-7 are in reduce_scatter(h.7)",
        "rank 3 is in \"backward\""}});
  all.push_back(
      {"AnotherSize",
       {StateMaker(0, 3).in("all_gather(x)", 7, 100).bytes(80),
        StateMaker(1, 3).in("all_gather(x)", 7, 100).bytes(96),
        StateMaker(2, 3).in("all_gather(x)", 7, 100).bytes(80)},
       {},
       What::mismatch,
       {1},
       {"ranks 0, 2 are in all_gather(x) of 80 bytes, rank 1 is in all_gather(x) of 96"}});
  all.push_back(
      {"HalfAndHalf",
       {StateMaker(0, 2).in("all_gather(x)", 7, 100), StateMaker(1, 2).in("barrier(y)", 7, 100)},
       {},
       What::mismatch,
       {0, 1},
       {"rank 0 is in all_gather(x), rank 1 is in barrier(y)"}});
  all.push_back({"AMismatchThatOneRankHasLeft",
                 {StateMaker(0, 2).ended("all_gather(x)", 7, 99),
                  StateMaker(1, 2).in("broadcast(y)", 7, 100)},
                 {},
                 What::mismatch,
                 {0, 1},
                 {"differs"}});
  return all;
}

TEST(Diagnosis, OfEveryKindOfFault) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const Diagnosis found = diagnose(each.ranks, each.deaths, clock_at(103.2));
    EXPECT_EQ(found.what, each.what);
    EXPECT_EQ(found.culprits, each.culprits);
    const std::string text = joined(found);
    std::size_t from = 0;
    for (const std::string& line : each.lines) {
      const std::size_t place = text.find(line, from);
      EXPECT_NE(place, std::string::npos) << "\"" << line << "\" behind byte " << from << " of:\n"
                                          << text;
      if (place != std::string::npos) from = place;
    }
    if (each.lines.empty()) {
      EXPECT_THAT(found.lines, IsEmpty());
    }
  }
}

// Else the line would contradict its host's name, the stack and who is ended.
TEST(Diagnosis, NamesTheRanksThatTheFinderBlames) {
  int compared = 0;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const Diagnosis found = diagnose(each.ranks, each.deaths, clock_at(103.2));
    const bool circle = joined(found).find("in a circle") != std::string::npos;
    if (found.what != What::hang || WaitGraph(each.ranks).all().empty() || circle) continue;
    const Blame blame = find_blame(each.ranks);
    std::vector<int> blamed;
    for (const int index : blame.blamed) {
      blamed.push_back(each.ranks[static_cast<std::size_t>(index)].rank);
    }
    std::vector<int> named;  // the finder asks the system which ranks are stopped
    bool elsewhere = false;
    for (const int rank : found.culprits) {
      const auto state = std::ranges::find(each.ranks, rank, &FlightState::rank);
      elsewhere = elsewhere || state == each.ranks.end();
      if (state == each.ranks.end() || state->over) continue;
      const bool inside = !state->open.empty() && !state->process_state.empty();
      if (!inside) named.push_back(rank);
    }
    EXPECT_EQ(blamed, named);
    EXPECT_EQ(blame.elsewhere, elsewhere);
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

TEST(Diagnosis, TheOrderOfRanksDoesNotMatter) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    const std::vector<FlightState> backwards(each.ranks.rbegin(), each.ranks.rend());
    const Diagnosis found = diagnose(backwards, each.deaths, clock_at(103.2));
    EXPECT_EQ(found.culprits, each.culprits);
    EXPECT_EQ(joined(found), joined(diagnose(each.ranks, each.deaths, clock_at(103.2))));
  }
}

TEST(Diagnosis, SendersOfDifferentSumsAgree) {
  const std::vector<FlightState> ranks{StateMaker(0, 2).in("all_to_all(x)", 7, 100).bytes(80),
                                       StateMaker(1, 2).in("all_to_all(x)", 7, 100).bytes(96)};
  EXPECT_EQ(diagnose(ranks, {}, clock_at(103)).what, What::hang);
}

TEST(Diagnosis, TellsHowLongTheLongestHasWaited) {
  std::vector<FlightState> ranks = all_waiting_but(3, StateMaker(3));
  ranks[6] = waiting(6, 99.5);
  EXPECT_NEAR(diagnose(ranks, {}, clock_at(103.2)).waited_seconds, 3.7, 1e-9);
}

TEST(Diagnosis, TellsNoWaitTwice) {
  const Diagnosis found = diagnose(all_waiting_but(3, StateMaker(3)), {}, clock_at(103.2));
  EXPECT_EQ(found.lines.size(), 2U) << joined(found);
}

}  // namespace
}  // namespace zero::testing
