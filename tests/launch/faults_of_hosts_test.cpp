// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What is found where ranks of several hosts are seen, and by whom.
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

// Rank 2 is alone on its host: nobody there waits for it.
TEST(FaultsOfHosts, ARankThatNoHostFindsAloneIsNamedByTheOneThatDecides) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.spread({0, 0, 1, 2}, true);
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  const Finding found = looks.during(1.5);
  EXPECT_EQ(found.what, What::hang);
  EXPECT_THAT(found.culprits, ElementsAre(2));
}

TEST(FaultsOfHosts, OthersNameItIfTheOneThatDecidesDoesNot) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.spread({0, 0, 1, 2}, false);
  Looks looks(ranks);
  EXPECT_EQ(looks.during(4.3).what, What::nothing);
  EXPECT_THAT(looks.during(1.5).culprits, ElementsAre(2));
}

// Rank 3 waits for it too, on its own host.
TEST(FaultsOfHosts, AHostThatFindsItsOwnFaultTellsOfItFirst) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.spread({0, 0, 1, 1}, true);
  Looks looks(ranks);
  EXPECT_EQ(looks.during(4.3).what, What::nothing);
  EXPECT_THAT(looks.during(1.5).culprits, ElementsAre(2));
}

TEST(FaultsOfHosts, AHostTellsOfItsOwnAtOnceWhoeverDecides) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.spread({0, 0, 0, 1}, false);
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  EXPECT_THAT(looks.during(1.5).culprits, ElementsAre(2));
}

// Nobody of its host can tell, and the hub may be the one that says nothing.
TEST(FaultsOfHosts, ASilentHostOfOneRankIsNamedOnceOthersWait) {
  for (const bool decides : {true, false}) {
    FakeRanks ranks;
    ranks.wait_for_2();
    ranks.spread({0, 0, 1, 2}, decides);
    ranks.silence(1);
    Looks looks(ranks);
    EXPECT_EQ(looks.during(2.3).what, What::nothing);
    const Finding found = looks.during(1.5);
    EXPECT_THAT(found.culprits, ElementsAre(2));
    EXPECT_THAT(found.stopped, ElementsAre(2));
  }
}

TEST(FaultsOfHosts, ASilentHostForWhichNobodyWaitsIsLeftAlone) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 2}, true);
  ranks.silence(1);
  Looks looks(ranks);
  const auto go_on = [&] {
    for (const int i : {0, 1, 3}) ++ranks.at(i).changed;
    ranks.at(0).open = {collective(5, {0, 1})};  // it comes and goes
    ranks.at(1).open = {collective(5, {0, 1})};
  };
  EXPECT_EQ(looks.during(60, go_on).what, What::nothing);
}

// Its other ranks may do what they should; they have time to tell of the first.
TEST(FaultsOfHosts, OfASilentHostTheFirstRankIsNamedAndLater) {
  FakeRanks ranks;
  ranks.at(0).open = ranks.at(1).open = {collective(5, {0, 1, 2, 3})};
  ranks.spread({0, 0, 1, 1}, true);
  ranks.silence(1);
  Looks looks(ranks);
  EXPECT_EQ(looks.during(4.3).what, What::nothing);
  EXPECT_THAT(looks.during(1.5).culprits, ElementsAre(2));
}

// Whose rank waits for a rank of a host that is not seen from here, through the one that is silent.
TEST(FaultsOfHosts, ASilentHostIsNamedByThoseWhoSeeNobodyElse) {
  FakeRanks ranks;
  ranks.at(0).open = ranks.at(1).open = ranks.at(2).open = {collective(5, {0, 1, 2, 9})};
  ranks.spread({0, 0, 0, 1}, false);
  ranks.silence(1);
  Looks looks(ranks);
  EXPECT_THAT(looks.during(4).culprits, ElementsAre(3));
}

// The link between the hosts is cut: all have come, and it does not end.
TEST(FaultsOfHosts, ACollectiveOfSeveralHostsThatDoesNotEndIsToldByTheOneThatDecides) {
  for (const bool decides : {true, false}) {
    FakeRanks ranks;
    for (int i = 0; i < 4; ++i) ranks.at(i).open = {collective(5, {0, 1, 2, 3})};
    ranks.spread({0, 0, 1, 1}, decides);
    Looks looks(ranks);
    EXPECT_EQ(looks.during(2.3).what, What::nothing);
    const Finding found = looks.during(1.5);
    EXPECT_EQ(found.what, decides ? What::hang : What::nothing);
    EXPECT_THAT(found.culprits, IsEmpty());
  }
}

// A circle of ranks 2 and 3, for which the others wait.
TEST(FaultsOfHosts, AHostWhoseRanksWaitForEachOtherTellsOfThat) {
  for (const bool decides : {true, false}) {
    FakeRanks ranks;
    ranks.at(0).open = ranks.at(1).open = {collective(5, {0, 1, 2, 3})};
    ranks.at(2).open = {collective(5, {2, 3}, "tensor")};
    ranks.at(3).open = {collective(7, {2, 3}, "replicate")};
    ranks.spread({0, 0, 1, 1}, decides);
    Looks looks(ranks);
    EXPECT_EQ(looks.during(4.3).what, What::nothing);
    EXPECT_EQ(looks.during(1.5).what, What::hang);
  }
}

TEST(FaultsOfHosts, NewsThatComesEverySecondLookCountsWhole) {
  FakeRanks ranks;
  ranks.wait_for_2();
  ranks.spread({0, 0, 1, 2}, true);
  ranks.activity_of(2).runnable = true;
  Looks looks(ranks);
  int round = 0;
  const auto spin = [&] {
    if (++round % 2 == 0) ranks.activity_of(2).cpu += 2 * FaultFinder::kBetweenLooks;
  };
  EXPECT_EQ(looks.during(2.3, spin).what, What::nothing);
  EXPECT_THAT(looks.during(1.5, spin).culprits, ElementsAre(2));
}

TEST(FaultsOfHosts, ALossIsADeathUnlessTheRankHasTold) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 2}, true);
  Looks looks(ranks);
  ranks.end(2);
  const Finding found = looks.once();
  EXPECT_EQ(found.what, What::death);
  EXPECT_TRUE(found.speaks);
  EXPECT_THAT(found.culprits, ElementsAre(2));
  ranks.at(2).last_words = error_words("no room on the disk");
  EXPECT_EQ(looks.once().what, What::told);
}

// The heartbeats may have a network of their own.
TEST(FaultsOfHosts, ALostHostWithWhichOthersGoOnIsNoDeath) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 1}, true);
  ranks.lose(1);
  Looks looks(ranks);
  const auto go_on = [&] {
    for (const int i : {0, 1}) ++ranks.at(i).changed;
    ranks.at(0).open = ranks.at(1).open = {collective(5, {0, 1, 2, 3})};
  };
  EXPECT_EQ(looks.during(60, go_on).what, What::nothing);
}

TEST(FaultsOfHosts, ALostHostForWhichOthersWaitIsADeathWithinASecond) {
  for (const bool decides : {true, false}) {
    FakeRanks ranks;
    ranks.spread({0, 0, 1, 1}, decides);
    ranks.at(0).open = ranks.at(1).open = {collective(5, {0, 1, 2, 3})};
    Looks looks(ranks);
    EXPECT_EQ(looks.during(0.6).what, What::nothing);
    ranks.lose(1);
    EXPECT_EQ(looks.during(0.4).what, What::nothing);
    const Finding found = looks.during(0.4);
    EXPECT_EQ(found.what, What::death);
    EXPECT_TRUE(found.speaks);
    EXPECT_THAT(found.culprits, ElementsAre(2)) << "the first of its host";
  }
}

// All of the host has come, as far as its last heartbeat tells; the host was lost in the middle.
TEST(FaultsOfHosts, ALostHostIsADeathInACollectiveThatDoesNotEnd) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 1}, true);
  for (int i = 0; i < 4; ++i) ranks.at(i).open = {collective(5, {0, 1, 2, 3})};
  Looks looks(ranks, 60);
  EXPECT_EQ(looks.during(1.8).what, What::nothing);
  ranks.lose(1);
  const Finding found = looks.once();
  EXPECT_EQ(found.what, What::death);
  EXPECT_THAT(found.culprits, ElementsAre(2));
}

/// Of this host's ranks, 0 and 1, a collective with a host that was lost by the first look has
/// ended since.
void end_one_behind_a_loss(FakeRanks& ranks) {
  for (const int i : {0, 1}) {
    ranks.at(i).last = {collective(4, {0, 1, 2, 3})};
    ranks.at(i).last.front().ended = 2 * kSecond;  // looks begin at 1 s
  }
}

TEST(FaultsOfHosts, OfALostHostThatWentOnTheLimitOfAHangHolds) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 1}, true);
  ranks.lose(1);
  Looks looks(ranks);
  EXPECT_EQ(looks.once().what, What::nothing);
  end_one_behind_a_loss(ranks);
  for (const int i : {0, 1}) {
    ++ranks.at(i).changed;
    ranks.at(i).open = {collective(5, {0, 1, 2, 3})};
    ranks.at(i).phase = "save";
  }
  EXPECT_EQ(looks.during(600).what, What::nothing) << "how long that takes nobody knows";
  for (const int i : {0, 1}) {
    ++ranks.at(i).changed;
    ranks.at(i).phase = "backward";
  }
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  const Finding found = looks.during(0.6);
  EXPECT_EQ(found.what, What::death);
  EXPECT_THAT(found.culprits, ElementsAre(2));
}

TEST(FaultsOfHosts, AHostThatIsBackAndLostAgainIsHeldToItsSecondLoss) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 1}, true);
  Looks looks(ranks);
  ranks.lose(1);
  EXPECT_EQ(looks.once().what, What::nothing);
  ranks.find_again(1);
  end_one_behind_a_loss(ranks);
  EXPECT_EQ(looks.during(2).what, What::nothing);
  ranks.lose(1);
  for (const int i : {0, 1}) {
    ++ranks.at(i).changed;
    ranks.at(i).open = {collective(5, {0, 1, 2, 3})};
  }
  EXPECT_EQ(looks.during(1).what, What::nothing);
  const Finding found = looks.during(0.6);
  EXPECT_EQ(found.what, What::death);
  EXPECT_THAT(found.culprits, ElementsAre(2));
}

TEST(FaultsOfHosts, AHostThatIsBackMayBeWaitedFor) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 1}, true);
  ranks.lose(1);
  Looks looks(ranks);
  ranks.at(0).open = ranks.at(1).open = {collective(5, {0, 1, 2, 3})};
  EXPECT_EQ(looks.during(0.6).what, What::nothing);
  ranks.find_again(1);
  EXPECT_EQ(looks.during(1.7).what, What::nothing);
}

TEST(FaultsOfHosts, OfARankThatIsSeenALostHostIsNotToBlame) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 1}, true);
  ranks.at(0).open = {collective(5, {0, 1, 2, 3})};
  ranks.at(1).last = {collective(4, {0, 1, 2, 3})};
  ranks.lose(1);
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.3).what, What::nothing);
  const Finding found = looks.during(0.8);
  EXPECT_EQ(found.what, What::hang);
  EXPECT_THAT(found.culprits, ElementsAre(1));
}

TEST(FaultsOfHosts, OfWaitsForOthersALostHostIsNotToBlame) {
  FakeRanks ranks;
  ranks.spread({0, 0, 1, 1}, true);
  ranks.at(0).open = {collective(5, {0, 9})};  // 9 is not seen from here
  ranks.lose(1);
  Looks looks(ranks);
  EXPECT_EQ(looks.during(2.8).what, What::nothing);
}

}  // namespace
}  // namespace zero
