// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/host_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>

#include "device/cpu/primitives.h"
#include "tests/collectives/body.h"
#include "tests/support/reference_sums.h"

namespace zero::test {
namespace {

using Hosts = std::vector<int>;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Aligned, not aligned, uneven, alone, round robin, out of order, and whatever a seed gives.
std::vector<Hosts> layouts() {
  std::vector<Hosts> all{{0},
                         {4, 4},
                         {0, 1},
                         {0, 0, 0, 0, 1, 1, 1, 1},
                         {0, 0, 0, 1, 1, 1, 1, 1},
                         {0, 1, 0, 1, 0, 1, 0, 1},
                         {0, 0, 1, 1, 2, 2, 0, 0},
                         {2, 2, 2, 1, 1, 0},
                         {0, 0, 0, 0, 0, 0, 0, 1},
                         {0, 1, 1, 1, 1, 1, 1, 1},
                         {0, 0, 0, 1, 1, 1, 2, 2, 2}};
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    Hosts hosts(1 + random() % 40);
    const unsigned count = 1 + random() % 4;
    for (int& host : hosts) host = static_cast<int>(random() % count);
    if (i % 2 == 0) std::ranges::sort(hosts);
    all.push_back(hosts);
  }
  return all;
}

// What a host's memory gives: the tree over a sub-tree's ranks.
float sum_of(RankRange range, std::span<const float> values) {
  return testing::tree_sum(values.subspan(at(range.begin), at(range.count())));
}

TEST(HostPlan, SumsOfSubTreesFoldToTheBitsOfTheWholeTree) {
  for (const Hosts& hosts : layouts()) {
    const HostPlan plan(hosts);
    for (int element = 0; element < 20; ++element) {
      std::vector<float> values;
      for (int rank = 0; rank < plan.ranks(); ++rank) {
        values.push_back(static_cast<float>(wild(rank, element)));
      }
      std::vector<float> sums;
      for (const RankRange& range : plan.subtrees()) sums.push_back(sum_of(range, values));
      for (const HostPlan::Fold& fold : plan.folds()) {
        std::vector<float> inputs;
        for (const int input : fold) inputs.push_back(sums.at(at(input)));
        sums.push_back(testing::tree_sum(inputs));
      }
      EXPECT_EQ(std::bit_cast<std::uint32_t>(sums.back()),
                std::bit_cast<std::uint32_t>(testing::tree_sum(values)));
    }
  }
}

TEST(HostPlan, SubTreesHoldEveryRankOnceAndOneHostEach) {
  for (const Hosts& hosts : layouts()) {
    const HostPlan plan(hosts);
    int next = 0;
    for (int i = 0; i < static_cast<int>(plan.subtrees().size()); ++i) {
      const RankRange range = plan.subtrees()[at(i)];
      EXPECT_EQ(range.begin, next);
      next = range.end;
      EXPECT_EQ(plan.summing()[at(i)].size(), range.count());
      for (int rank = range.begin; rank < range.end; ++rank) {
        EXPECT_EQ(plan.subtree_of(rank), i);
        EXPECT_EQ(hosts[at(rank)], hosts[at(range.begin)]);
        EXPECT_EQ(plan.summing()[at(i)].members()[at(rank - range.begin)], rank);
      }
    }
    EXPECT_EQ(next, plan.ranks());
  }
}

TEST(HostPlan, TheLargestSubTreesOfAHostStayWhole) {
  using Ranges = std::vector<RankRange>;
  const auto subtrees = [](const Hosts& hosts) { return HostPlan(hosts).subtrees(); };
  EXPECT_EQ(subtrees({0, 0, 0, 0, 1, 1, 1, 1}), (Ranges{{0, 4}, {4, 8}}));
  EXPECT_EQ(subtrees({0, 0, 0, 1, 1, 1, 1, 1}), (Ranges{{0, 2}, {2, 3}, {3, 4}, {4, 8}}));
  EXPECT_EQ(subtrees({0, 0, 0, 0, 1, 1, 1}), (Ranges{{0, 4}, {4, 7}}));
  EXPECT_EQ(subtrees({0, 1, 0, 1}), (Ranges{{0, 1}, {1, 2}, {2, 3}, {3, 4}}));
  EXPECT_EQ(subtrees({3, 3, 3}), (Ranges{{0, 3}}));
}

TEST(HostPlan, OneFoldDoesWhereTheSubTreesAreAList) {
  using Folds = std::vector<HostPlan::Fold>;
  const auto folds = [](const Hosts& hosts) { return HostPlan(hosts).folds(); };
  EXPECT_EQ(folds({0, 0, 0, 0, 1, 1, 1, 1}), (Folds{{0, 1}}));
  EXPECT_EQ(folds({0, 0, 1, 1, 2, 2}), (Folds{{0, 1, 2}}));
  EXPECT_EQ(folds({0, 1, 0, 1, 0}), (Folds{{0, 1, 2, 3, 4}}));
  EXPECT_EQ(folds({0, 0, 0, 1, 1, 1, 1, 1}), (Folds{{1, 2}, {0, 4}, {5, 3}}));
  EXPECT_TRUE(folds({1, 1}).empty());
}

TEST(HostPlan, EveryRankIsAssignedToOneMemberOnceAndMembersToThemselves) {
  for (const Hosts& hosts : layouts()) {
    const HostPlan plan(hosts);
    std::vector<WorkAssignment> all = plan.hosts();
    all.insert(all.end(), plan.summing().begin(), plan.summing().end());
    for (const WorkAssignment& work : all) {
      std::multiset<int> seen;
      for (int round = 0; round < work.rounds(); ++round) {
        for (int member = 0; member < work.size(); ++member) {
          const int rank = work.assigned(round, member);
          if (rank < 0) continue;
          seen.insert(rank);
          EXPECT_EQ(work.owner(rank), work.members()[at(member)]);
        }
      }
      EXPECT_EQ(seen.size(), at(plan.ranks()));
      EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
      for (int member = 0; member < work.size(); ++member) {
        EXPECT_EQ(work.owner(work.members()[at(member)]), work.members()[at(member)]);
        EXPECT_EQ(work.index(work.members()[at(member)]), member);
      }
    }
  }
}

TEST(HostPlan, EqualHostsPairTheirRanks) {
  const HostPlan plan({0, 0, 0, 0, 1, 1, 1, 1});
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(plan.hosts()[1].owner(rank), rank + 4);
    EXPECT_EQ(plan.hosts()[0].owner(rank + 4), rank);
  }
  EXPECT_EQ(plan.hosts()[0].rounds(), 2);
}

// A rank's values, and what is left of them where sub-trees are summed, as views.
struct Values {
  std::vector<std::vector<float>> exact;
  std::vector<std::vector<bfloat16>> wire;

  Values(int ranks, std::int64_t count) {
    for (int rank = 0; rank < ranks; ++rank) {
      exact.emplace_back();
      wire.emplace_back();
      for (std::int64_t i = 0; i < count; ++i) {
        wire.back().push_back(to_bfloat16(static_cast<float>(wild(rank, i))));
        exact.back().push_back(to_float(wire.back().back()));
      }
    }
  }

  std::vector<float> tree_at(std::int64_t element) const {
    std::vector<float> values;
    for (const auto& one : exact) values.push_back(one[static_cast<std::size_t>(element)]);
    return values;
  }
};

TEST(Fold, MixesBf16OfSingleRanksWithFp32Sums) {
  for (const Hosts& hosts : {Hosts{0, 0, 0, 1, 1, 1, 1, 1}, Hosts{0, 0, 1, 2, 2},
                             Hosts{0, 1, 1, 1, 0}, Hosts{0, 0, 1, 1}, Hosts{0, 1, 0}}) {
    constexpr std::int64_t kCount = 5003;
    const HostPlan plan(hosts);
    Values values(plan.ranks(), kCount);
    std::vector<std::vector<float>> sums;
    std::vector<View> views;
    for (const RankRange& range : plan.subtrees()) {
      sums.emplace_back();
      for (std::int64_t i = 0; i < kCount; ++i) {
        sums.back().push_back(sum_of(range, values.tree_at(i)));
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const RankRange range = plan.subtrees()[i];
      views.push_back(range.count() == 1 ? View::of(std::span(values.wire[at(range.begin)]))
                                         : View::of(std::span(sums[i])));
    }
    std::vector<View> all;
    for (auto& one : values.exact) all.push_back(View::of(std::span(one)));
    std::vector<float> addend(kCount, 0.125F);
    std::vector<float> expected(kCount);
    std::vector<float> result(kCount);
    const auto epilogue = [&](std::vector<float>& to) {
      return ReduceEpilogue{
          .addends = {View::of(std::span(addend))},
          .destination = View::of(std::span(to)),
          .norm = std::make_shared<ExactSum>(),
          .excluded = std::make_shared<std::vector<ElementRange>>(1, ElementRange{100, 3000})};
    };
    const ReduceEpilogue of_all = epilogue(expected);
    const ReduceEpilogue of_sums = epilogue(result);
    cpu::tree_reduce(all, of_all);
    fold(plan, views, of_sums);
    EXPECT_EQ(result, expected);
    EXPECT_EQ(of_sums.norm->value(), of_all.norm->value());
  }
}

TEST(Fold, CombinesIntegersAndMaximaInPlace) {
  const HostPlan plan({0, 0, 0, 1, 1, 1, 1, 1});
  constexpr std::int64_t kCount = 5003;
  std::vector<std::vector<std::int64_t>> values;
  std::vector<View> views;
  for (int i = 0; i < 4; ++i) values.emplace_back(kCount);
  for (auto& each : values) views.push_back(View::of(std::span(each)));
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
    for (int i = 0; i < 4; ++i) {
      for (std::int64_t e = 0; e < kCount; ++e) {
        values[at(i)][static_cast<std::size_t>(e)] = (e + 3 * i) % 7;
      }
    }
    fold(plan, op, views, views[2]);
    for (std::int64_t e = 0; e < kCount; ++e) {
      std::int64_t sum = 0;
      std::int64_t largest = 0;
      for (int i = 0; i < 4; ++i) {
        sum += (e + 3 * i) % 7;
        largest = std::max(largest, (e + 3 * i) % 7);
      }
      EXPECT_EQ(values[2][static_cast<std::size_t>(e)], op == ReduceOp::sum ? sum : largest);
    }
  }
}

TEST(Slices, PartsAndDealsAreCutAsFarAsSlicesReach) {
  std::vector<float> buffer(100);
  const Slices slices{.buffer = View::of(std::span(buffer)),
                      .ranges = {{0, 10}, {20, 3}, {40, 0}, {50, 50}}};
  EXPECT_EQ(slices.largest(), 50);
  const Slices part = slices.part(2, 4);
  const std::vector<Slices::Range> expected{{2, 4}, {22, 1}, {40, 0}, {52, 4}};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(part.of(rank).data(), &buffer[static_cast<std::size_t>(expected[at(rank)].begin)]);
    EXPECT_EQ(part.of(rank).count(), expected[at(rank)].count);
  }
  const Slices beyond = slices.part(64, 4);
  EXPECT_EQ(beyond.total(), 0);
  const Slices round = assigned_slices(slices, WorkAssignment(4, {1, 2, 3}), 1);
  EXPECT_EQ(round.world(), 3);
  EXPECT_EQ(round.of(0).count(), 10);  // rank 0, assigned to rank 1
  EXPECT_EQ(round.total(), 10);
}

}  // namespace
}  // namespace zero::test
