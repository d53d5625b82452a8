// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "partition/flat_layout.h"
#include "tests/partition/units.h"

namespace zero::testing {
namespace {

/// Whether the ranks' parts of each parameter are consecutive, lie in their owners' shards and make
/// up the parameter.
bool owned_exactly_once(const std::vector<ParameterSpec>& unit, int world, std::int64_t small) {
  const FlatLayout layout(unit, world, small);
  return std::ranges::all_of(layout.placements(), [&](const Placement& placement) {
    std::int64_t next = placement.begin;
    bool good = true;
    for (int rank = 0; rank < world; ++rank) {
      const FlatRange own = layout.owned(rank, placement.range());
      const bool in_shard =
          own.begin >= rank * layout.shard() && own.end() <= (rank + 1) * layout.shard();
      good = good && own.begin == next && (in_shard || own.count == 0);
      next = own.end();
    }
    return good && next == placement.begin + placement.count;
  });
}

TEST(Owned, EveryElementOfAwkwardUnitsIsOwnedExactlyOnce) {
  for (const auto& unit : awkward_units()) {
    for (const int world : kWorlds) {
      for (const std::int64_t small : kThresholds) {
        EXPECT_TRUE(owned_exactly_once(unit, world, small))
            << "world " << world << " small " << small;
      }
    }
  }
}

TEST(Owned, EveryElementOfAnyUnitIsOwnedExactlyOnce) {
  EXPECT_TRUE(rc::check(
      [] { RC_ASSERT(owned_exactly_once(unit_of(any_sizes()), any_world(), any_threshold())); }));
}

TEST(Owned, IsTheIntersectionWithTheShard) {
  EXPECT_TRUE(rc::check([] {
    const FlatLayout layout(unit_of(any_sizes()), any_world(), any_threshold());
    const auto begin = *rc::gen::inRange<std::int64_t>(0, layout.padded() + 1);
    const auto count = *rc::gen::inRange<std::int64_t>(0, layout.padded() - begin + 1);
    std::int64_t next = begin;
    for (int rank = 0; rank < layout.world(); ++rank) {
      const FlatRange own = layout.owned(rank, {begin, count});
      RC_ASSERT(own.begin == next);  // consecutive over the ranks, empty parts too
      next = own.end();
      if (own.count == 0) continue;
      RC_ASSERT(own.begin / layout.shard() == rank);
      RC_ASSERT((own.end() - 1) / layout.shard() == rank);
    }
    RC_ASSERT(next == begin + count);
  }));
}

/// What a checkpoint of one world gives to another, by owned() alone: the owner in the new layout
/// asks who of the old one had each part.
bool reshards(const std::vector<ParameterSpec>& unit, const FlatLayout& from,
              const FlatLayout& to) {
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const std::int64_t old_begin = from.placements()[i].begin;
    const std::int64_t new_begin = to.placements()[i].begin;
    std::vector<int> moved(static_cast<std::size_t>(unit[i].count()), 0);
    for (int rank = 0; rank < to.world(); ++rank) {
      const FlatRange wanted = to.owned(rank, to.placements()[i].range());
      for (int owner = 0; owner < from.world(); ++owner) {
        const FlatRange part =
            from.owned(owner, {wanted.begin - new_begin + old_begin, wanted.count});
        for (std::int64_t at = part.begin; at < part.end(); ++at)
          ++moved.at(static_cast<std::size_t>(at - old_begin));
      }
    }
    if (!std::ranges::all_of(moved, [](int times) { return times == 1; })) return false;
  }
  return true;
}

TEST(Owned, IsEnoughToReshardBetweenAnyWorldsAndThresholds) {
  EXPECT_TRUE(rc::check([] {
    const auto unit = unit_of(any_sizes());
    const auto world = [] { return *rc::gen::inRange(1, 10); };
    RC_ASSERT(reshards(unit, FlatLayout(unit, world(), any_threshold()),
                       FlatLayout(unit, world(), any_threshold())));
  }));
}

TEST(Owned, AParameterAcrossShardsIsCutAtTheirEnds) {
  const FlatLayout layout(unit_of({100, 200}), 3, 0);  // shards of 128
  const FlatRange second = layout.placements()[1].range();
  EXPECT_EQ(second, (FlatRange{128, 200}));
  EXPECT_EQ(layout.owned(0, second), (FlatRange{128, 0}));
  EXPECT_EQ(layout.owned(1, second), (FlatRange{128, 128}));
  EXPECT_EQ(layout.owned(2, second), (FlatRange{256, 72}));
}

TEST(Owned, ARankOutsideTheWorldIsRefused) {
  const FlatLayout layout(unit_of({100}), 3, 0);
  EXPECT_EQ(error_of([&] {
              layout.owned(3, {0, 1});
            }),
            "flat layout: rank 3 in a world of 3; expected 0 to 2");
  EXPECT_EQ(error_of([&] {
              layout.owned(-1, {0, 1});
            }),
            "flat layout: rank -1 in a world of 3; expected 0 to 2");
}

TEST(Owned, ARangeOutsideTheLayoutIsRefused) {
  const FlatLayout layout(unit_of({100}), 2, 0);
  EXPECT_EQ(error_of([&] {
              layout.owned(0, {100, 29});
            }),
            "flat layout: [100, 100 + 29) is outside its 128 elements");
}

TEST(FlatRangeWithin, AnotherOneBesideItIsEmptyAtTheNearerEnd) {
  EXPECT_EQ((FlatRange{10, 5}.within({0, 3})), (FlatRange{10, 0}));
  EXPECT_EQ((FlatRange{10, 5}.within({20, 3})), (FlatRange{15, 0}));
  EXPECT_EQ((FlatRange{10, 5}.within({12, 0})), (FlatRange{12, 0}));
  EXPECT_EQ((FlatRange{10, 5}.within({0, 99})), (FlatRange{10, 5}));
}

}  // namespace
}  // namespace zero::testing
