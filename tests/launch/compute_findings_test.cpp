// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/compute_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Passes of three outputs that all agree, on `world` ranks in groups of `tensor`.
std::vector<CheckedPass> agreeing(int world, int tensor) {
  const auto of = [](int rank) { return PassHashes{rank * 10 + 1, rank * 10 + 2, rank * 10 + 3}; };
  std::vector<CheckedPass> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back({of(rank), of(rank), of((rank + world - tensor) % world)});
  }
  return ranks;
}

/// `hashes` from output `from` on are others.
void change(PassHashes& hashes, std::size_t from) {
  for (std::size_t i = from; i < hashes.size(); ++i) hashes[i] += 1000;
}

/// A rank whose core always computes output `from` wrongly, and so what follows from it.
void always_wrong(CheckedPass& rank, std::size_t from) {
  for (PassHashes* const hashes : {&rank.first, &rank.again, &rank.of_previous}) {
    change(*hashes, from);
  }
}

TEST(ComputeFindings, AgreeingPassesAreNoFinding) {
  for (const int world : {1, 2, 3, 8}) {
    EXPECT_THAT(find_wrong_passes(agreeing(world, 1), 1), IsEmpty()) << world;
  }
  EXPECT_THAT(find_wrong_passes(agreeing(4, 2), 2), IsEmpty());
  EXPECT_THAT(find_wrong_passes(agreeing(4, 4), 4), IsEmpty()) << "one group has no peer";
}

TEST(ComputeFindings, ARankWithTwoResultsIsWrongItself) {
  for (const int world : {1, 2, 4}) {
    std::vector<CheckedPass> ranks = agreeing(world, 1);
    const int wrong = world - 1;
    change(ranks[static_cast<std::size_t>(wrong)].first, 1);
    const auto found = find_wrong_passes(ranks, 1);
    ASSERT_THAT(found, SizeIs(1)) << "its peer disagrees for the same reason";
    EXPECT_THAT(found[0].ranks, ElementsAre(wrong));
    EXPECT_EQ(found[0].output, 1U);
    EXPECT_FALSE(found[0].by_peer);
  }
}

TEST(ComputeFindings, ARankThatIsWrongAlikeEachTimeIsNamedByBothItsPeers) {
  for (int wrong = 0; wrong < 5; ++wrong) {
    std::vector<CheckedPass> ranks = agreeing(5, 1);
    always_wrong(ranks[static_cast<std::size_t>(wrong)], 2);
    const auto found = find_wrong_passes(ranks, 1);
    ASSERT_THAT(found, SizeIs(1)) << wrong;
    EXPECT_THAT(found[0].ranks, ElementsAre(wrong));
    EXPECT_EQ(found[0].output, 2U);
    EXPECT_TRUE(found[0].by_peer);
  }
}

TEST(ComputeFindings, OfTwoGroupsThatDisagreeEitherMayBeWrong) {
  std::vector<CheckedPass> two = agreeing(2, 1);
  always_wrong(two[1], 0);
  auto found = find_wrong_passes(two, 1);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].ranks, ElementsAre(0, 1));

  // One pass of a peer went wrong once: the peer, or the rank whose input it had.
  std::vector<CheckedPass> four = agreeing(4, 1);
  change(four[0].of_previous, 1);
  found = find_wrong_passes(four, 1);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].ranks, ElementsAre(0, 3));
}

TEST(ComputeFindings, InATensorGroupTheRankThatDiffersFirstIsNamed) {
  std::vector<CheckedPass> ranks = agreeing(4, 2);
  change(ranks[3].again, 0);  // its own product
  change(ranks[2].again, 1);  // the sum over the group
  auto found = find_wrong_passes(ranks, 2);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].ranks, ElementsAre(3));

  ranks = agreeing(4, 2);
  change(ranks[2].again, 1);
  change(ranks[3].again, 1);
  found = find_wrong_passes(ranks, 2);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].ranks, ElementsAre(2, 3)) << "an addend of either";

  ranks = agreeing(6, 2);
  always_wrong(ranks[2], 0);
  always_wrong(ranks[3], 1);
  found = find_wrong_passes(ranks, 2);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_THAT(found[0].ranks, ElementsAre(2));
}

TEST(HostFindings, TheSecondOfAHostEndsTheRun) {
  HostFindings findings;
  EXPECT_EQ(findings.add(10, {"a"}), std::nullopt);
  EXPECT_EQ(findings.add(20, {"b", "b"}), std::nullopt);
  EXPECT_EQ(findings.add(20, {"b"}), std::nullopt) << "of the same step";
  EXPECT_EQ(findings.add(40, {"b"}),
            "host b computed wrongly twice, in steps 20 and 40: take it out "
            "(run.check_compute_every), and start again from a checkpoint before step 20");
}

TEST(HostFindings, HostsOfWhichOneIsWrongCountTogether) {
  HostFindings findings;
  EXPECT_EQ(findings.add(1, {"b", "a"}), std::nullopt);
  EXPECT_EQ(findings.add(2, {"a"}), std::nullopt);
  EXPECT_EQ(findings.add(3, {"a", "b"}),
            "one of the hosts a, b computed wrongly twice, in steps 1 and 3: take them out "
            "(run.check_compute_every), and start again from a checkpoint before step 1");
}

}  // namespace
}  // namespace zero::testing
