// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "partition/shard_map.h"
#include "tests/partition/units.h"

namespace zero::testing {
namespace {

// How often each logical element of each parameter is covered by `pieces`.
void cover(const std::vector<Piece>& pieces, std::vector<std::vector<int>>& counts) {
  for (const Piece& piece : pieces) {
    for (std::int64_t i = 0; i < piece.count; ++i) {
      ++counts.at(static_cast<std::size_t>(piece.parameter))
            .at(static_cast<std::size_t>(piece.logical_begin + i));
    }
  }
}

std::vector<std::vector<int>> no_counts(const FlatLayout& layout) {
  std::vector<std::vector<int>> counts;
  for (const Placement& placement : layout.placements()) {
    counts.emplace_back(static_cast<std::size_t>(placement.count), 0);
  }
  return counts;
}

bool all_one(const std::vector<std::vector<int>>& counts) {
  return std::ranges::all_of(counts, [](const auto& of_parameter) {
    return std::ranges::all_of(of_parameter, [](int count) { return count == 1; });
  });
}

// Every piece lies where the layout says: same flat index by shard and by parameter.
bool well_placed(const FlatLayout& layout, const Piece& piece) {
  const Placement& placement = layout.placements().at(static_cast<std::size_t>(piece.parameter));
  return piece.count > 0 && piece.shard_begin >= 0 &&
         piece.shard_begin + piece.count <= layout.shard() &&
         piece.rank * layout.shard() + piece.shard_begin == placement.begin + piece.logical_begin;
}

bool owned_exactly_once(const std::vector<ParameterSpec>& unit, int world, std::int64_t small) {
  const FlatLayout layout(unit, world, small);
  const ShardMap map(layout);
  auto by_rank = no_counts(layout);
  bool good = true;
  for (int rank = 0; rank < world; ++rank) {
    const auto pieces = map.pieces_of_rank(rank);
    for (const Piece& piece : pieces)
      good = good && piece.rank == rank && well_placed(layout, piece);
    good = good && std::ranges::is_sorted(pieces, {}, &Piece::shard_begin);
    cover(pieces, by_rank);
  }
  auto by_parameter = no_counts(layout);
  for (int parameter = 0; parameter < static_cast<int>(unit.size()); ++parameter) {
    const auto pieces = map.pieces_of_parameter(parameter);
    for (const Piece& piece : pieces) {
      good = good && piece.parameter == parameter && well_placed(layout, piece);
    }
    good = good && std::ranges::is_sorted(pieces, {}, &Piece::logical_begin);
    cover(pieces, by_parameter);
  }
  return good && all_one(by_rank) && all_one(by_parameter);
}

TEST(ShardMap, EveryElementOfAwkwardUnitsIsOwnedExactlyOnce) {
  for (const auto& unit : awkward_units()) {
    for (const int world : kWorlds) {
      for (const std::int64_t small : kThresholds) {
        EXPECT_TRUE(owned_exactly_once(unit, world, small))
            << "world " << world << " small " << small;
      }
    }
  }
}

TEST(ShardMap, EveryElementOfAnyUnitIsOwnedExactlyOnce) {
  EXPECT_TRUE(rc::check(
      [] { RC_ASSERT(owned_exactly_once(unit_of(any_sizes()), any_world(), any_threshold())); }));
}

TEST(ShardMap, OwnedIsTheIntersectionWithTheShard) {
  EXPECT_TRUE(rc::check([] {
    const FlatLayout layout(unit_of(any_sizes()), any_world(), any_threshold());
    const ShardMap map(layout);
    const auto begin = *rc::gen::inRange<std::int64_t>(0, layout.padded() + 1);
    const auto count = *rc::gen::inRange<std::int64_t>(0, layout.padded() - begin + 1);
    std::int64_t next = begin;
    for (int rank = 0; rank < layout.world(); ++rank) {
      const ShardMap::Range range = map.owned(rank, begin, count);
      if (range.count == 0) continue;
      RC_ASSERT(rank * layout.shard() + range.begin == next);  // consecutive over the ranks
      RC_ASSERT(range.begin + range.count <= layout.shard());
      next += range.count;
    }
    RC_ASSERT(next == begin + count);
  }));
}

TEST(ShardMap, AParameterAcrossShardsIsCutAtTheirEnds) {
  const ShardMap map(FlatLayout(unit_of({100, 200}), 3, 0));  // shards of 128
  const std::vector<Piece> second = {
      {.parameter = 1, .rank = 1, .logical_begin = 0, .shard_begin = 0, .count = 128},
      {.parameter = 1, .rank = 2, .logical_begin = 128, .shard_begin = 0, .count = 72}};
  EXPECT_EQ(map.pieces_of_parameter(1), second);
  EXPECT_EQ(map.pieces_of_rank(0).size(), 1U);
  EXPECT_EQ(map.pieces_of_rank(2), std::vector<Piece>{second[1]});
}

TEST(ShardMap, ARankOutsideTheWorldIsRefused) {
  const ShardMap map(FlatLayout(unit_of({100}), 3, 0));
  const std::string message = "shard map: rank 3 in a world of 3; expected 0 to 2";
  EXPECT_EQ(error_of([&] { map.pieces_of_rank(3); }), message);
  EXPECT_EQ(error_of([&] { map.owned(3, 0, 1); }), message);
  EXPECT_EQ(error_of([&] { map.pieces_of_rank(-1); }),
            "shard map: rank -1 in a world of 3; expected 0 to 2");
}

TEST(ShardMap, AnUnknownParameterIsRefused) {
  const ShardMap map(FlatLayout(unit_of({100}), 3, 0));
  EXPECT_EQ(error_of([&] { map.pieces_of_parameter(1); }),
            "shard map: parameter 1 of a unit of 1; expected an index below that");
}

TEST(ShardMap, ARangeOutsideTheLayoutIsRefused) {
  const ShardMap map(FlatLayout(unit_of({100}), 2, 0));
  EXPECT_EQ(error_of([&] { map.owned(0, 100, 29); }),
            "shard map: [100, 100 + 29) is outside a flat layout of 128 elements");
}

}  // namespace
}  // namespace zero::testing
