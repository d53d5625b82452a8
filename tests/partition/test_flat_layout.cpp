// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "partition/flat_layout.h"
#include "tests/partition/units.h"

namespace zero::testing {
namespace {

void expect_invariants(const std::vector<ParameterSpec>& unit, int world, std::int64_t small) {
  const FlatLayout layout(unit, world, small);
  ASSERT_EQ(layout.placements().size(), unit.size());
  EXPECT_EQ(layout.world(), world);
  EXPECT_EQ(layout.shard() % kAlignment, 0);
  EXPECT_EQ(layout.padded(), layout.shard() * world);
  EXPECT_EQ(layout.padding(), layout.padded() - layout.logical());
  EXPECT_EQ(layout.tail_begin() % kAlignment, 0);
  EXPECT_LE(layout.tail_begin() + layout.tail(), layout.padded());
  EXPECT_LT(layout.padded() - (layout.tail_begin() + layout.tail()), world * kAlignment);

  std::int64_t logical = 0;
  std::int64_t large_end = 0;
  std::int64_t tail_end = layout.tail_begin();
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const Placement& placement = layout.placements()[i];
    EXPECT_EQ(placement.index, static_cast<int>(i));
    EXPECT_EQ(placement.count, unit[i].count());
    EXPECT_EQ(placement.begin % kAlignment, 0);
    logical += placement.count;
    // In the order given, without overlap and with less than one alignment of padding between.
    std::int64_t& end = placement.count > small ? large_end : tail_end;
    EXPECT_GE(placement.begin, end);
    EXPECT_LT(placement.begin, end + kAlignment);
    end = placement.begin + placement.count;
  }
  EXPECT_LE(large_end, layout.tail_begin());
  EXPECT_LE(tail_end, layout.tail_begin() + layout.tail());
  EXPECT_EQ(layout.logical(), logical);
}

TEST(FlatLayout, InvariantsHoldForAwkwardUnitsWorldsAndThresholds) {
  for (const auto& unit : awkward_units()) {
    for (const int world : kWorlds) {
      for (const std::int64_t small : kThresholds) expect_invariants(unit, world, small);
    }
  }
}

TEST(FlatLayout, InvariantsHoldForAnySizes) {
  EXPECT_TRUE(rc::check([] {
    expect_invariants(unit_of(any_sizes()), any_world(), any_threshold());
    RC_ASSERT(!::testing::Test::HasFailure());
  }));
}

TEST(FlatLayout, SmallParametersFormTheTailBehindTheLargeOnes) {
  const FlatLayout layout(unit_of({10, 1000, 64, 2000, 65}), 2, 64);
  EXPECT_EQ(layout.placements()[1].begin, 0);
  EXPECT_EQ(layout.placements()[3].begin, 1024);
  EXPECT_EQ(layout.placements()[4].begin, 3072);  // 65 is above the threshold
  EXPECT_EQ(layout.tail_begin(), 3200);
  EXPECT_EQ(layout.placements()[0].begin, 3200);
  EXPECT_EQ(layout.placements()[2].begin, 3264);
  EXPECT_EQ(layout.tail(), 128);
  EXPECT_EQ(layout.shard(), 1664);
  EXPECT_EQ(layout.logical(), 3139);
  EXPECT_EQ(layout.padding(), 189);
}

TEST(FlatLayout, AUnitWithoutElementsHasEmptyShards) {
  const FlatLayout layout(unit_of({0, 0}), 5, 0);
  EXPECT_EQ(layout.shard(), 0);
  EXPECT_EQ(layout.padded(), 0);
  EXPECT_EQ(layout.tail(), 0);
}

TEST(FlatLayout, PaddingIsBelowOnePercentAboveTwoMillionElements) {
  const std::vector<std::vector<std::int64_t>> units = {
      {2'000'003},
      {1001, 1999 * 1001, 37, 1},
      // A transformer block of width 417 with biases and norms.
      {417, 417, 417 * 1251, 1251, 417 * 417, 417, 417, 417, 417 * 1668, 1668, 1668 * 417, 417},
  };
  for (const auto& sizes : units) {
    for (int world = 1; world <= 16; ++world) {
      const FlatLayout layout(unit_of(sizes), world, 100'000);
      ASSERT_GT(layout.logical(), 2'000'000);
      EXPECT_LT(layout.padding() * 100, layout.logical()) << "world " << world;
    }
  }
}

TEST(FlatLayout, ParametersStartAndShardsEndAtTheAlignment) {
  for (int world = 1; world <= 5; ++world) {
    const FlatLayout layout(unit_of({10, 1000, 256, 2000, 65}), world, 64, 256);
    for (const Placement& placement : layout.placements()) EXPECT_EQ(placement.begin % 256, 0);
    EXPECT_EQ(layout.shard() % 256, 0);
    EXPECT_GE(layout.padded(), 1024 + 256 + 2048 + 256 + 256);
    EXPECT_EQ(layout.tail(), 256);
  }
  for (const std::int64_t alignment : {0, 32, 100}) {
    EXPECT_EQ(error_of([&] { FlatLayout({}, 1, 0, alignment); }),
              fmt::format("flat layout: an alignment of {} elements; expected a multiple of 64",
                          alignment));
  }
}

TEST(FlatLayout, AWorldWithoutRanksIsRefused) {
  EXPECT_EQ(error_of([] { FlatLayout({}, 0, 0); }),
            "flat layout: a world of 0 ranks; expected 1 or more");
}

TEST(FlatLayout, ANegativeThresholdIsRefused) {
  EXPECT_EQ(error_of([] { FlatLayout({}, 1, -1); }),
            "flat layout: small parameters of at most -1 elements; expected 0 (none) or more");
}

TEST(FlatLayout, SizesThatOverflowAreRefusedByName) {
  EXPECT_EQ(error_of([] {
              FlatLayout(unit_of({1LL << 61, 1LL << 61}), 2, 0);
            }),
            "flat layout: parameter \"p1\" of 2305843009213693952 elements after "
            "2305843009213693952 others is more than 4611686018427387903 elements in all; split "
            "the unit");
}

}  // namespace
}  // namespace zero::testing
