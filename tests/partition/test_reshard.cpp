// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "partition/shard_map.h"
#include "tests/partition/units.h"

namespace zero::testing {
namespace {

using Shards = std::vector<std::vector<std::int64_t>>;  // (world, shard)

constexpr std::int64_t kUnset = -1;

// Shards whose logical elements each hold a number of their own; padding is unset.
Shards fill(const FlatLayout& layout) {
  std::vector<std::int64_t> flat(static_cast<std::size_t>(layout.padded()), kUnset);
  std::int64_t number = 0;
  for (const Placement& placement : layout.placements()) {
    for (std::int64_t i = 0; i < placement.count; ++i) {
      flat.at(static_cast<std::size_t>(placement.begin + i)) = number++;
    }
  }
  Shards shards;
  for (int rank = 0; rank < layout.world(); ++rank) {
    const auto first = flat.begin() + rank * layout.shard();
    shards.emplace_back(first, first + layout.shard());
  }
  return shards;
}

// Moves every element as reshard() says, into shards that are unset; false when one is written
// twice.
bool move(const FlatLayout& from, const FlatLayout& to, const Shards& source, Shards& target) {
  target.assign(static_cast<std::size_t>(to.world()),
                std::vector<std::int64_t>(static_cast<std::size_t>(to.shard()), kUnset));
  for (int rank = 0; rank < to.world(); ++rank) {
    for (const Transfer& t : reshard(from, to, rank)) {
      if (t.to_rank != rank || t.count <= 0) return false;
      for (std::int64_t i = 0; i < t.count; ++i) {
        auto& slot =
            target.at(static_cast<std::size_t>(rank)).at(static_cast<std::size_t>(t.to_begin + i));
        if (slot != kUnset) return false;
        slot = source.at(static_cast<std::size_t>(t.from_rank))
                   .at(static_cast<std::size_t>(t.from_begin + i));
      }
    }
  }
  return true;
}

bool moves_everything_once(const std::vector<ParameterSpec>& unit, const FlatLayout& from,
                           const FlatLayout& to) {
  Shards target;
  if (!move(from, to, fill(from), target)) return false;
  return target == fill(FlatLayout(to)) && to.logical() == from.logical() &&
         to.placements().size() == unit.size();
}

TEST(Reshard, MovesEveryElementOnceBetweenAnyTwoWorldsAndThresholds) {
  const auto units = awkward_units();
  for (const auto& unit : units) {
    for (const int old_world : kWorlds) {
      for (const int new_world : kWorlds) {
        EXPECT_TRUE(moves_everything_once(unit, FlatLayout(unit, old_world, 64),
                                          FlatLayout(unit, new_world, 1000)))
            << old_world << " to " << new_world;
      }
    }
  }
}

TEST(Reshard, MovesEveryElementOnceForAnySizes) {
  EXPECT_TRUE(rc::check([] {
    const auto unit = unit_of(any_sizes());
    const FlatLayout from(unit, any_world(), any_threshold());
    const FlatLayout to(unit, any_world(), any_threshold());
    RC_ASSERT(moves_everything_once(unit, from, to));
  }));
}

TEST(Reshard, TheSameLayoutIsOneCopyPerPiece) {
  const FlatLayout layout(unit_of({1000, 3, 500}), 3, 10);
  const ShardMap map(layout);
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<Transfer> expected;
    for (const Piece& piece : map.pieces_of_rank(rank)) {
      expected.push_back({.parameter = piece.parameter,
                          .from_rank = rank,
                          .to_rank = rank,
                          .from_begin = piece.shard_begin,
                          .to_begin = piece.shard_begin,
                          .count = piece.count});
    }
    EXPECT_EQ(reshard(layout, layout, rank), expected);
  }
}

TEST(Reshard, AnotherNumberOfParametersIsRefused) {
  EXPECT_EQ(error_of([] {
              reshard(FlatLayout(unit_of({8, 8}), 2, 0), FlatLayout(unit_of({8}), 2, 0), 0);
            }),
            "reshard: the old layout holds 2 parameters, the new one 1; both must hold the same");
}

TEST(Reshard, ParametersOfAnotherSizeAreRefused) {
  EXPECT_EQ(error_of([] {
              reshard(FlatLayout(unit_of({8, 9}), 2, 0), FlatLayout(unit_of({8, 10}), 2, 0), 0);
            }),
            "reshard: parameter 1 has 9 elements in the old layout, 10 in the new one; both must "
            "hold the same parameters in the same order");
}

TEST(Reshard, ARankOutsideTheNewWorldIsRefused) {
  const FlatLayout layout(unit_of({8}), 2, 0);
  EXPECT_EQ(error_of([&] { reshard(layout, layout, 2); }),
            "shard map: rank 2 in a world of 2; expected 0 to 1");
}

}  // namespace
}  // namespace zero::testing
