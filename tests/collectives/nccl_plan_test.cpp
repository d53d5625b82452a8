// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "collectives/nccl/plan.h"
#include "tests/collectives/body.h"
#include "tests/errors.h"
#include "tests/support/reference_sums.h"

namespace zero::test {
namespace {

using nccl::HalvingRound;
using nccl::Sums;
using nccl::Way;
using ::testing::ElementsAre;

Slices equal_slices(int world, std::int64_t count, DType dtype = DType::fp32) {
  Slices slices{.buffer = View(nullptr, world * count, dtype, nullptr), .ranges = {}};
  for (int rank = 0; rank < world; ++rank) slices.ranges.push_back({rank * count, count});
  return slices;
}

TEST(NcclHalving, EachRoundHalvesWhatARankSums) {
  const std::vector<HalvingRound> rounds = nccl::halving(5, 8);
  ASSERT_EQ(rounds.size(), 3U);
  EXPECT_EQ(rounds[0].partner, 4);
  EXPECT_THAT(rounds[0].keeps, ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(rounds[0].gives, ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(rounds[1].partner, 7);
  EXPECT_THAT(rounds[1].keeps, ElementsAre(1, 5));
  EXPECT_THAT(rounds[1].gives, ElementsAre(3, 7));
  EXPECT_EQ(rounds[2].partner, 1);
  EXPECT_THAT(rounds[2].keeps, ElementsAre(5));
  EXPECT_THAT(rounds[2].gives, ElementsAre(1));
  EXPECT_THAT(error_of([] { static_cast<void>(nccl::halving(0, 6)); }),
              ::testing::HasSubstr("halving for rank 0 of 6; expected a power of two"));
}

TEST(NcclHalving, PartnersGiveWhatTheOtherKeeps) {
  for (int world = 2; world <= 64; world *= 2) {
    std::vector<std::vector<HalvingRound>> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(nccl::halving(rank, world));
    for (int rank = 0; rank < world; ++rank) {
      for (std::size_t round = 0; round < ranks.front().size(); ++round) {
        const HalvingRound& mine = ranks[static_cast<std::size_t>(rank)][round];
        const HalvingRound& theirs = ranks[static_cast<std::size_t>(mine.partner)][round];
        EXPECT_EQ(theirs.partner, rank);
        EXPECT_EQ(theirs.keeps, mine.gives);
        EXPECT_EQ(theirs.gives, mine.keeps);
      }
    }
  }
}

// The rounds played with real numbers: one value per slice and rank.
std::vector<float> halved_sums(int world) {
  using Values = std::vector<float>;
  std::vector<Values> held;
  for (int rank = 0; rank < world; ++rank) {
    Values& values = held.emplace_back();
    for (int slice = 0; slice < world; ++slice) {
      values.push_back(static_cast<float>(wild(rank, slice)));
    }
  }
  for (std::size_t round = 0; (1 << round) < world; ++round) {
    const std::vector<Values> before = held;
    for (int rank = 0; rank < world; ++rank) {
      const HalvingRound plan = nccl::halving(rank, world)[round];
      const auto low = static_cast<std::size_t>(std::min(rank, plan.partner));
      const auto high = static_cast<std::size_t>(std::max(rank, plan.partner));
      for (const int slice : plan.keeps) {
        const auto at = static_cast<std::size_t>(slice);
        held[static_cast<std::size_t>(rank)][at] = before[low][at] + before[high][at];
      }
    }
  }
  Values sums;
  for (std::size_t rank = 0; rank < held.size(); ++rank) sums.push_back(held[rank][rank]);
  return sums;
}

TEST(NcclHalving, GivesTheBitsOfTheTree) {
  for (int world = 2; world <= 64; world *= 2) {
    const std::vector<float> sums = halved_sums(world);
    for (int slice = 0; slice < world; ++slice) {
      std::vector<float> values;
      for (int rank = 0; rank < world; ++rank) {
        values.push_back(static_cast<float>(wild(rank, slice)));
      }
      EXPECT_EQ(sums[static_cast<std::size_t>(slice)], testing::tree_sum(values))
          << world << " ranks";
    }
  }
}

TEST(NcclPlan, ManyRanksWithSmallSlicesHalve) {
  EXPECT_EQ(nccl::way_of(equal_slices(32, 64)), Way::direct);
  EXPECT_EQ(nccl::way_of(equal_slices(64, 64)), Way::halving);
  EXPECT_EQ(nccl::way_of(equal_slices(65, 64)), Way::direct);
  EXPECT_EQ(nccl::way_of(equal_slices(64, 8192)), Way::halving);
  EXPECT_EQ(nccl::way_of(equal_slices(64, 8193)), Way::direct);
}

TEST(NcclPlan, TheWorkspaceHoldsWhatTheWayNeeds) {
  EXPECT_EQ(nccl::workspace(equal_slices(1, 100), Sums::exact), 0);
  EXPECT_EQ(nccl::workspace(equal_slices(8, 100), Sums::exact), 700);
  EXPECT_EQ(nccl::workspace(equal_slices(8, 100), Sums::fast), 100);
  // 32 places of 128 elements for sums in fp32, as many for what comes in bf16, and what aligns.
  const Slices many = equal_slices(64, 100, DType::bf16);
  EXPECT_EQ(nccl::halving_room(many).sums_bytes, 32 * 128 * 4);
  EXPECT_EQ(nccl::halving_room(many).received_bytes, 32 * 128 * 2);
  EXPECT_EQ(nccl::workspace(many, Sums::exact), (32 * 128 * 6 + 64) / 2);
}

TEST(NcclPlan, OneBlockIsEqualSlicesInOrder) {
  EXPECT_TRUE(nccl::are_one_block(equal_slices(3, 5)));
  EXPECT_FALSE(nccl::are_one_block(equal_slices(3, 0)));
  Slices slices = equal_slices(3, 5);
  slices.ranges[2] = {10, 4};
  EXPECT_FALSE(nccl::are_one_block(slices));
  slices.ranges[2] = {11, 4};
  EXPECT_FALSE(nccl::are_one_block(slices));
  EXPECT_FALSE(
      nccl::are_one_block(Slices::strided(View(nullptr, 30, DType::fp32, nullptr), 3, 2, 5)));
}

}  // namespace
}  // namespace zero::test
