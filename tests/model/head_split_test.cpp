// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "architecture/decoder_shape.h"

namespace zero::testing {
namespace {

// Every head of queries has one rank, which has the keys that it reads; the ranks that hold the
// same keys are numbered, and are adjacent.
TEST(HeadSplit, DealsOutEveryHeadWithItsKeys) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int, int>>{{12, 12}, {12, 4}, {12, 3}, {8, 1}, {32, 8}, {5, 5}}) {
    for (int ranks = 1; ranks <= heads; ++ranks) {
      const std::int64_t group = heads / kv_heads;
      std::vector<int> owners(static_cast<std::size_t>(heads));
      std::map<std::int64_t, std::set<int>> copies;  // of a head of keys
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadSplit split = HeadSplit::of(heads, kv_heads, rank, ranks);
        ASSERT_GE(split.queries.count, 1);
        EXPECT_EQ(split.queries.count % split.keys.count, 0);
        for (std::int64_t i = 0; i < split.queries.count; ++i) {
          ++owners[static_cast<std::size_t>(split.queries.begin + i)];
          const std::int64_t key = (split.queries.begin + i) / group;
          // As attention has it: query i of this rank reads key i * keys / queries.
          EXPECT_EQ(key, split.keys.begin + i * split.keys.count / split.queries.count);
        }
        for (std::int64_t i = 0; i < split.keys.count; ++i) {
          EXPECT_TRUE(copies[split.keys.begin + i].insert(split.keys.copy).second);
        }
      }
      EXPECT_EQ(owners, std::vector<int>(static_cast<std::size_t>(heads), 1));
      EXPECT_EQ(static_cast<int>(copies.size()), kv_heads);
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadSplit split = HeadSplit::of(heads, kv_heads, rank, ranks);
        const std::set<int>& of_head = copies.at(split.keys.begin);
        EXPECT_EQ(static_cast<int>(of_head.size()), split.keys.holders);
        EXPECT_EQ(*of_head.rbegin(), split.keys.holders - 1);
      }
    }
  }
}

TEST(HeadSplit, TakesQueriesKeysAndValuesOutOfOneRow) {
  const HeadSplit split = HeadSplit::of(12, 4, 3, 8);  // the second of head 1's two ranks
  const auto ranges = split.qkv(12, 4, 10);
  ASSERT_EQ(ranges.size(), 3U);
  EXPECT_EQ(ranges[0].begin, 50);
  EXPECT_EQ(ranges[0].count, 10);
  EXPECT_EQ(ranges[0].copy, 0);
  EXPECT_EQ(ranges[1].begin, 130);
  EXPECT_EQ(ranges[1].count, 10);
  EXPECT_EQ(ranges[1].copy, 1);
  EXPECT_EQ(ranges[2].begin, 170);
  EXPECT_EQ(ranges[2].copy, 1);
  EXPECT_EQ(split.attended(10).begin, 50);
  EXPECT_EQ(split.attended(10).count, 10);
}

}  // namespace
}  // namespace zero::testing
