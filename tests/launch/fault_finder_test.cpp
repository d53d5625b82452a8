// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/fake_ranks.h"
#include "tests/launch/flight_states.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace testing;
using What = Finding::What;

TEST(FaultFinder, NamesTheRankThatOthersWaitFor) {
  FakeRanks ranks;
  ranks.wait_for_2();
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  const Finding found = looks.during(1.5);
  EXPECT_EQ(found.what, What::hang);
  EXPECT_TRUE(found.speaks);
  EXPECT_THAT(found.culprits, ElementsAre(2));
  EXPECT_THAT(found.stopped, IsEmpty());
}

TEST(FaultFinder, LongStepsHaveLongLimits) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.at(2).mean_step_seconds = 2;
  Looks looks(ranks);
  EXPECT_EQ(looks.during(9.3).what, What::nothing);
  EXPECT_EQ(looks.during(1.5).what, What::hang);
}

TEST(FaultFinder, ALimitThatIsGivenHolds) {
  FakeRanks ranks;
  ranks.wait_for_2();
  Looks looks(ranks, 1);
  EXPECT_EQ(looks.during(0.7).what, What::nothing);
  EXPECT_EQ(looks.during(1).what, What::hang);
  Looks patient(ranks, 60);
  EXPECT_EQ(patient.during(59).what, What::nothing);
  EXPECT_EQ(patient.during(3).what, What::hang);
}

TEST(FaultFinder, ARankThatDoesAnythingDoesNotHang) {
  FakeRanks ranks;
  ranks.wait_for_2();
  Looks looks(ranks);
  int round = 0;
  const auto work_now_and_then = [&] {
    if (++round % 10 == 0) ++ranks.at(2).changed;  // every two seconds
  };
  EXPECT_EQ(looks.during(60, work_now_and_then).what, What::nothing);
  EXPECT_FALSE(looks.suspected());
}

TEST(FaultFinder, NothingIsExaminedWhileAllGoOn) {
  FakeRanks ranks;
  ranks.wait_for_2();
  Looks looks(ranks);
  const auto work = [&] {
    for (int i = 0; i < 4; ++i) ++ranks.at(i).changed;
  };
  EXPECT_EQ(looks.during(10, work).what, What::nothing);
  EXPECT_EQ(ranks.examined(), 0);
}

// Nobody waits for a rank that computes for long.
TEST(FaultFinder, ALongComputationIsNoHang) {
  FakeRanks ranks;
  Looks looks(ranks);
  EXPECT_EQ(looks.during(600).what, What::nothing);
}

// It is not to blame that it waits for another: 0 -> 1 -> 2.
TEST(FaultFinder, TheRankAtTheEndOfAChainIsToBlame) {
  FakeRanks ranks;
  ranks.at(0).open = {collective(5, {0, 1}, "shard")};
  ranks.at(1).open = {collective(7, {1, 2}, "replicate")};
  Looks looks(ranks);
  EXPECT_THAT(looks.during(4).culprits, ElementsAre(2));
}

// The others have left it and wait in the next one.
TEST(FaultFinder, ARankLeftBehindInACollectiveIsNamedAndKnows) {
  FakeRanks ranks(2);
  ranks.wait_for_2();
  ranks.at(2).last.clear();
  ranks.at(2).open = {collective(4, {0, 1, 2, 3})};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  EXPECT_TRUE(looks.suspected());
  FakeRanks first;
  for (int i = 0; i < 4; ++i) first.at(i) = ranks.at(i);
  Looks of_first(first);
  EXPECT_THAT(of_first.during(4).culprits, ElementsAre(2));
}

// Ranks 2 and 3 are in it with all of their group; 0 and 1 wait for them elsewhere.
TEST(FaultFinder, NobodyIsToBlameBehindACollectiveThatDoesNotEnd) {
  FakeRanks ranks;
  ranks.at(0).open = {collective(9, {0, 2})};
  ranks.at(1).open = {collective(9, {1, 3})};
  for (const int index : {2, 3}) ranks.at(index).open = {collective(5, {2, 3}, "tensor")};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  const Finding found = looks.during(1.5);
  EXPECT_EQ(found.what, What::hang);
  EXPECT_THAT(found.culprits, IsEmpty());
}

TEST(FaultFinder, RanksThatWaitForEachOtherHang) {
  FakeRanks ranks;
  ranks.at(0).open = {collective(5, {0, 1}, "shard")};
  ranks.at(1).open = {collective(7, {0, 1}, "replicate")};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  const Finding found = looks.during(1.5);
  EXPECT_EQ(found.what, What::hang);
  EXPECT_THAT(found.culprits, IsEmpty());
}

TEST(FaultFinder, RanksOfOtherHostsAreNotJudged) {
  FakeRanks ranks;
  ranks.at(0).open = {collective(5, {0, 1, 9})};
  ranks.at(1).open = {collective(5, {0, 1, 9})};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(60).what, What::nothing);
}

// Sixteen ranks on two cores, compilers beside them.
TEST(FaultFinder, ARankThatWaitsForACoreDoesNotHang) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.activity_of(2).runnable = true;
  Looks looks(ranks);
  EXPECT_EQ(looks.during(60).what, What::nothing);
}

TEST(FaultFinder, ARankThatWaitsForACoreIsHeldToTheTimeThatItRuns) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.activity_of(2).runnable = true;
  Looks looks(ranks);
  // A tenth of a core; a quarter of the limit is not looked into.
  const auto run = [&] { ranks.activity_of(2).cpu += FaultFinder::kBetweenLooks / 10; };
  EXPECT_EQ(looks.during(16, run).what, What::nothing);
  EXPECT_EQ(looks.during(10, run).what, What::hang);
}

// An endless loop on eight threads is no eight times as long.
TEST(FaultFinder, ThreadsDoNotMakeTimePassFaster) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.activity_of(2).runnable = true;
  Looks looks(ranks);
  const auto run = [&] { ranks.activity_of(2).cpu += FaultFinder::kBetweenLooks * 8; };
  EXPECT_EQ(looks.during(2.3, run).what, What::nothing);
  EXPECT_EQ(looks.during(1.5, run).what, What::hang);
}

// The watchdog was stopped too, with the whole job, or starved.
TEST(FaultFinder, TimeInWhichNobodyLookedDoesNotCount) {
  FakeRanks ranks;
  ranks.wait_for_2();
  Looks looks(ranks);
  EXPECT_EQ(looks.once().what, What::nothing);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(looks.once(3600 * kSecond).what, What::nothing);
  for (int i = 0; i < 4; ++i) ++ranks.at(i).changed;
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
}

TEST(FaultFinder, AStoppedRankIsNamedInAnyPhase) {
  for (const char* const phase :
       {"start", "load", "save", "validation", "between steps", "forward"}) {
    FakeRanks ranks;
    ranks.wait_for_2();
    ranks.at(2).phase = phase;
    ranks.at(2).mean_step_seconds = 0;
    ranks.activity_of(2).stopped = true;
    Looks looks(ranks);
    EXPECT_EQ(looks.during(2.3).what, What::nothing) << phase;
    const Finding found = looks.during(1.5);
    EXPECT_EQ(found.what, What::hang) << phase;
    EXPECT_THAT(found.culprits, ElementsAre(2)) << phase;
    EXPECT_THAT(found.stopped, ElementsAre(2)) << phase;
  }
}

// All have come; one has been stopped since.
TEST(FaultFinder, AStoppedRankIsNamedInsideOfTheCollective) {
  FakeRanks ranks;
  for (int i = 0; i < 4; ++i) ranks.at(i).open = {collective(5, {0, 1, 2, 3})};
  ranks.activity_of(3).stopped = true;
  Looks looks(ranks);
  const Finding found = looks.during(4);
  EXPECT_THAT(found.culprits, ElementsAre(3));
  EXPECT_THAT(found.stopped, ElementsAre(3));
}

TEST(FaultFinder, ARankThatGoesOnBeforeTheLimitIsForgiven) {
  FakeRanks ranks;
  ranks.wait_for_2();
  Looks looks(ranks);
  for (int round = 0; round < 5; ++round) {
    ranks.activity_of(2).stopped = true;
    EXPECT_EQ(looks.during(2).what, What::nothing);
    ranks.activity_of(2).stopped = false;
    ++ranks.at(2).changed;
  }
}

TEST(FaultFinder, EachPhaseOfUsualLengthHasTheLimit) {
  for (const char* const phase : {"forward", "backward", "update", "validation", "decode"}) {
    FakeRanks ranks;
    ranks.wait_for_2();
    ranks.at(2).phase = phase;
    Looks looks(ranks);
    EXPECT_THAT(looks.during(4).culprits, ElementsAre(2)) << phase;
  }
}

// The first step and saves take what they take; run.collective_timeout ends them. So do those who
// write prompts, and prompts of any length. Where a disk decides: DiskHangs; ranks that compute all
// the time: Loops.
TEST(FaultFinder, PhasesOfUnknownLengthKeepTheirLimits) {
  for (const char* const phase : {"", "start", "load", "save", "between steps", "end", "prompts",
                                  "draft", "prefill", "first validation"}) {
    FakeRanks ranks;
    ranks.wait_for_2();
    ranks.at(2).phase = phase;
    Looks looks(ranks, 1);
    EXPECT_EQ(looks.during(60).what, What::nothing) << phase;
  }
  for (const char* const phase : {"forward", "validation"}) {
    FakeRanks ranks;
    ranks.wait_for_2();
    ranks.at(2).phase = phase;
    ranks.at(2).mean_step_seconds = 0;  // in the first step, or behind it
    Looks looks(ranks);
    EXPECT_EQ(looks.during(60).what, What::nothing) << phase;
  }
}

TEST(FaultFinder, TheWordFallsWithinThreeSecondsOrFiveSteps) {
  for (const double mean : {0.5, 2.0}) {
    for (const bool stopped : {false, true}) {
      FakeRanks ranks;
      ranks.wait_for_2();
      for (int i = 0; i < 4; ++i) ranks.at(i).mean_step_seconds = mean;
      ranks.activity_of(2).stopped = stopped;
      ranks.activity_of(2).runnable = !stopped;
      Looks looks(ranks);  // the first is 0.2 s behind the last that the rank did
      const auto run = [&] {
        if (!stopped) ranks.activity_of(2).cpu += FaultFinder::kBetweenLooks;
      };
      EXPECT_EQ(looks.during(noticed_within(mean), run).what, What::hang) << mean << stopped;
    }
  }
}

TEST(FaultFinder, ARankThatHangsKnowsBeforeTheLimit) {
  FakeRanks ranks(2);
  ranks.wait_for_2();
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  EXPECT_TRUE(looks.suspected());
  EXPECT_EQ(looks.during(10).what, What::nothing) << "rank 0 tells";
  FakeRanks others(1);
  others.wait_for_2();
  Looks of_other(others);
  EXPECT_EQ(of_other.during(10).what, What::nothing);
  EXPECT_FALSE(of_other.suspected());
}

// run.collective_timeout ends it, with the stack that it has taken.
TEST(FaultFinder, ARankThatIsWaitedForInAPhaseOfUnknownLengthKnowsToo) {
  FakeRanks ranks(2);
  ranks.wait_for_2();
  ranks.at(2).phase = "save";
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  EXPECT_TRUE(looks.suspected());
}

TEST(FaultFinder, TheLowestRankThatRunsTells) {
  FakeRanks ranks(1);
  for (const int index : {1, 2, 3}) ranks.at(index).open = {collective(5, {0, 1, 2, 3})};
  ranks.activity_of(0).stopped = true;
  Looks looks(ranks);
  const Finding found = looks.during(4);
  EXPECT_TRUE(found.speaks);
  EXPECT_THAT(found.stopped, ElementsAre(0));
}

TEST(FaultFinder, ADeathIsFoundAtOnce) {
  FakeRanks ranks;
  Looks looks(ranks);
  EXPECT_EQ(looks.once().what, What::nothing);
  ranks.end(3);
  const Finding found = looks.once(20'000'000);
  EXPECT_EQ(found.what, What::death);
  EXPECT_TRUE(found.speaks);
  EXPECT_THAT(found.culprits, ElementsAre(3));
}

// Also where a disk decides, as soon as others wait: it looks as if it waited for one.
TEST(FaultFinder, ARankWhoseCoreIsDumpedIsDead) {
  for (const bool loads : {false, true}) {
    FakeRanks ranks;
    if (loads) {
      ranks.wait_for_2_and_its_disk("load");
    } else {
      ranks.wait_for_2();
    }
    ranks.activity_of(2) = {.dumps_core = true, .in_device = true};
    ranks.at(2).disk_calls = {.begun = 8, .ended = 7};
    Looks looks(ranks);
    EXPECT_TRUE(loads || looks.during(0.8).what == What::nothing);
    const Finding found = looks.during(0.6);
    EXPECT_EQ(found.what, What::death);
    EXPECT_TRUE(found.speaks);
    EXPECT_THAT(found.culprits, ElementsAre(2));
  }
}

TEST(FaultFinder, SeveralDeathsAreOneFault) {
  FakeRanks ranks(1);
  Looks looks(ranks);
  ranks.end(0);
  ranks.end(3);
  ranks.wait_for_2();
  const Finding found = looks.once();
  EXPECT_EQ(found.what, What::death);
  EXPECT_TRUE(found.speaks) << "rank 0 cannot";
  EXPECT_THAT(found.culprits, ElementsAre(0, 3));
}

TEST(FaultFinder, OneRankTellsOfADeathAndAnotherIfItDoesNot) {
  FakeRanks ranks(2);
  Looks looks(ranks);
  ranks.end(3);
  EXPECT_EQ(looks.once().what, What::death);
  EXPECT_FALSE(looks.once().speaks);
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(looks.once().speaks);
  EXPECT_TRUE(looks.once().speaks);
}

TEST(FaultFinder, AGoodEndIsNoDeath) {
  FakeRanks ranks;
  Looks looks(ranks);
  ranks.at(3).over = true;
  EXPECT_EQ(looks.once().what, What::nothing);
  ranks.end(3);
  EXPECT_EQ(looks.during(60).what, What::nothing);
}

TEST(FaultFinder, ARankThatHasToldIsNotToldOfAgain) {
  FakeRanks ranks;
  Looks looks(ranks);
  ranks.at(1).last_words = error_words("no room on the disk");
  EXPECT_EQ(looks.once().what, What::nothing) << "it is about to tell";
  ranks.end(1);
  const Finding found = looks.once();
  EXPECT_EQ(found.what, What::told);
  EXPECT_FALSE(found.speaks);
  EXPECT_THAT(found.culprits, ElementsAre(1));
}

TEST(FaultFinder, AnErrorThatIsNotToldYetIsADeath) {
  FakeRanks ranks;
  Looks looks(ranks);
  ranks.at(1).last_words = outrun_words("no room on the disk");
  ranks.end(1);
  EXPECT_EQ(looks.once().what, What::death);
}

TEST(FaultFinder, AnotherTellsOfARankThatASignalHasEnded) {
  FakeRanks ranks;
  Looks looks(ranks);
  ranks.at(1).last_words = signal_words();
  ranks.end(1);
  EXPECT_EQ(looks.once().what, What::death);
}

TEST(FaultFinder, ADeathComesBeforeAHang) {
  FakeRanks ranks;
  ranks.wait_for_2();
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  ranks.end(3);
  EXPECT_THAT(looks.once().culprits, ElementsAre(3));
}

}  // namespace
}  // namespace zero
