// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Ranks for which others wait where a disk decides for how long: what is a hang there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/launch/fake_ranks.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace testing;
using What = Finding::What;

TEST(DiskHangs, ARankThatDoesNothingIsNamedAfterTenSeconds) {
  for (const char* const phase : {"load", "save", "end"}) {
    FakeRanks ranks;
    ranks.wait_for_2_and_its_disk(phase);
    Looks looks(ranks);
    // It is looked at after 0.6 s, and what came before does not count.
    EXPECT_EQ(looks.during(10.4).what, What::nothing) << phase;
    const Finding found = looks.during(0.2);
    EXPECT_EQ(found.what, What::hang) << phase;
    EXPECT_TRUE(found.speaks);
    EXPECT_THAT(found.culprits, ElementsAre(2)) << phase;
    EXPECT_THAT(found.stopped, IsEmpty());
  }
}

// Others wait there behind its computing, or behind the reader of what it prints.
TEST(DiskHangs, InOtherPhasesNothingIsFound) {
  for (const char* const phase : {"", "start", "validation", "between steps", "prompts"}) {
    FakeRanks ranks;
    ranks.wait_for_2_and_its_disk("save");
    ranks.at(2).phase = phase;
    Looks looks(ranks);
    EXPECT_EQ(looks.during(600).what, What::nothing) << phase;
  }
}

TEST(DiskHangs, TheLimitOfStepsHoldsIfItIsLonger) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("save");
  ranks.at(0).mean_step_seconds = 4;
  Looks looks(ranks);
  EXPECT_EQ(looks.during(19.5).what, What::nothing);
  EXPECT_THAT(looks.during(2).culprits, ElementsAre(2));

  FakeRanks others;
  others.wait_for_2_and_its_disk("save");
  Looks hasty(others, 1);
  EXPECT_EQ(hasty.during(10).what, What::nothing);
  EXPECT_THAT(hasty.during(2).culprits, ElementsAre(2));
  Looks patient(others, 60);
  EXPECT_EQ(patient.during(60).what, What::nothing);
  EXPECT_THAT(patient.during(20).culprits, ElementsAre(2));
}

TEST(DiskHangs, ASlowDiskIsNone) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("save");
  Looks looks(ranks);
  int round = 0;
  const auto write_now_and_then = [&] {
    if (++round % 40 != 0) return;  // every eight seconds
    ++ranks.at(2).disk_calls.begun;
    ++ranks.at(2).disk_calls.ended;
  };
  EXPECT_EQ(looks.during(600, write_now_and_then).what, What::nothing);
  EXPECT_EQ(looks.during(8).what, What::nothing);
  EXPECT_THAT(looks.during(4).culprits, ElementsAre(2));
}

// It may sleep as if it had nothing to do: io_uring, FUSE.
TEST(DiskHangs, ADiskThatDoesNotAnswerIsNone) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("save");
  ranks.at(2).disk_calls = {.begun = 8, .ended = 7};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(3600).what, What::nothing);
  EXPECT_FALSE(looks.suspected());
  ++ranks.at(2).disk_calls.ended;
  EXPECT_EQ(looks.during(9.8).what, What::nothing);
  EXPECT_THAT(looks.during(0.2).culprits, ElementsAre(2));
}

// Within a step nothing is said of how long a disk takes: of an update, whose states a save still
// writes, or which reads files of tiers.
TEST(DiskHangs, TheLimitOfAStepDoesNotHoldForADisk) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.at(2).disk_calls = {.begun = 8, .ended = 7};
  Looks of_backward(ranks);  // the tokens of the next micro-batch
  EXPECT_EQ(of_backward.during(600).what, What::nothing);
  ranks.at(2).phase = "update";
  ranks.at(2).disk_calls = {.begun = 8, .ended = 7};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(600).what, What::nothing);
  const auto write = [&] {
    ++ranks.at(2).disk_calls.begun;
    ++ranks.at(2).disk_calls.ended;
  };
  EXPECT_EQ(looks.during(600, write).what, What::nothing);
  ranks.at(2).disk_calls.ended = ranks.at(2).disk_calls.begun;
  EXPECT_EQ(looks.during(1.7).what, What::nothing);
  EXPECT_THAT(looks.during(2).culprits, ElementsAre(2));
}

// Its counters stand still as it does.
TEST(DiskHangs, AStoppedRankIsNamedThoughItIsInACallToTheDisk) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.at(2).disk_calls = {.begun = 8, .ended = 7};
  ranks.activity_of(2).stopped = true;
  Looks looks(ranks);
  EXPECT_THAT(looks.during(5).stopped, ElementsAre(2));
}

// Ranks stuck together wait beside a save that goes on.
TEST(DiskHangs, RanksThatNobodyWaitsForAreHeldToTheLimitOfAStep) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.at(2).open = ranks.at(0).open;
  ranks.at(0).disk_calls = {.begun = 8, .ended = 7};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(5).what, What::hang);
}

// As where a save fails: the first rank removes its files while the others wait.
TEST(DiskHangs, WithinAStepTheRuleOfDisksHoldsWhereADiskDecides) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("update");
  for (const int index : {0, 1, 2, 3}) ranks.at(index).mean_step_seconds = 0.1;
  Looks looks(ranks);
  EXPECT_EQ(looks.during(10.4).what, What::nothing);
  EXPECT_THAT(looks.during(0.2).culprits, ElementsAre(2));
  ranks.activity_of(2).in_device = true;
  EXPECT_EQ(looks.during(600).what, What::nothing);
}

// Others have left that collective: no disk is in its way. Outside of steps it may make
// connections.
TEST(DiskHangs, ARankLeftBehindInACollectiveIsHeldToTheLimitOfAStep) {
  for (const char* const phase : {"load", "update"}) {
    FakeRanks ranks;
    ranks.wait_for_2_and_its_disk(phase);
    ranks.at(2).mean_step_seconds = 0.5;
    ranks.at(2).last.clear();
    ranks.at(2).open = {collective(4, {0, 1, 2, 3})};
    Looks looks(ranks);
    EXPECT_EQ(looks.during(2.3).what, What::nothing) << phase;
    const std::vector<int> hung = looks.during(60).culprits;
    EXPECT_EQ(hung, phase == std::string("load") ? std::vector<int>{} : std::vector<int>{2});
  }
}

// Whom it waits for there nobody knows.
TEST(DiskHangs, ARankInACollectiveOfAnUnknownGroupIsNone) {
  for (const char* const phase : {"load", "update"}) {
    FakeRanks ranks;
    ranks.wait_for_2_and_its_disk(phase);
    ranks.at(2).mean_step_seconds = 0.5;
    ranks.at(2).open = {collective(7, {}, "")};
    Looks looks(ranks);
    EXPECT_EQ(looks.during(600).what, What::nothing) << phase;
    ranks.at(2).open.at(0).started = 0;  // only submitted
    EXPECT_THAT(looks.during(12).culprits, ElementsAre(2)) << phase;
  }
}

// A log, a page of a file that is mapped, memory from a swap file.
TEST(DiskHangs, AThreadThatWaitsForADeviceIsNone) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("load");
  ranks.activity_of(2).in_device = true;
  Looks looks(ranks);
  EXPECT_EQ(looks.during(3600).what, What::nothing);
  ranks.activity_of(2).in_device = false;
  EXPECT_EQ(looks.during(9).what, What::nothing);
  EXPECT_THAT(looks.during(2).culprits, ElementsAre(2));
}

TEST(DiskHangs, ARankThatWaitsForACoreIsHeldToTheTimeThatItRuns) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("end");
  ranks.activity_of(2).runnable = true;
  Looks looks(ranks);
  // By threads of which none runs most: no endless loop.
  const auto run = [&] { ranks.activity_of(2).cpu += FaultFinder::kBetweenLooks / 10; };
  EXPECT_EQ(looks.during(90, run).what, What::nothing);
  EXPECT_THAT(looks.during(20, run).culprits, ElementsAre(2));
}

TEST(DiskHangs, AStoppedRankIsNamedSoonerAndNotForTheTimeBefore) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("save");
  Looks looks(ranks);
  EXPECT_EQ(looks.during(8).what, What::nothing);
  ranks.activity_of(2).stopped = true;
  EXPECT_EQ(looks.during(1.5).what, What::nothing);
  const Finding found = looks.during(2);
  EXPECT_THAT(found.culprits, ElementsAre(2));
  EXPECT_THAT(found.stopped, ElementsAre(2));
}

// A first exchange of GPUs makes their connections.
TEST(DiskHangs, ACollectiveThatAllHaveEnteredIsNone) {
  FakeRanks ranks;
  ranks.wait_for_2_and_its_disk("load");
  ranks.at(2).open = ranks.at(0).open;
  Looks looks(ranks);
  EXPECT_EQ(looks.during(600).what, What::nothing);
}

// Its stack is taken once it does nothing: not where its disk held it up before.
TEST(DiskHangs, ARankThatHangsKnowsBeforeTheLimit) {
  FakeRanks ranks(2);
  ranks.wait_for_2_and_its_disk("save");
  ranks.at(2).disk_calls = {.begun = 1, .ended = 0};
  Looks looks(ranks);
  EXPECT_EQ(looks.during(20).what, What::nothing);
  ++ranks.at(2).disk_calls.ended;
  looks.during(4);
  EXPECT_FALSE(looks.suspected());
  looks.during(3);
  EXPECT_TRUE(looks.suspected());
}

// What heartbeats say of another host's rank: the same.
TEST(DiskHangs, HostsAgree) {
  for (const bool decides : {true, false}) {
    FakeRanks ranks;
    ranks.wait_for_2_and_its_disk("save");
    ranks.spread({0, 0, 1, 2}, decides);
    ranks.at(2).disk_calls = {.begun = 1, .ended = 0};
    Looks looks(ranks);
    EXPECT_EQ(looks.during(600).what, What::nothing);
    ++ranks.at(2).disk_calls.ended;
    EXPECT_EQ(looks.during(decides ? 9 : 11).what, What::nothing);
    EXPECT_THAT(looks.during(2).culprits, ElementsAre(2)) << decides;
  }
}

}  // namespace
}  // namespace zero
