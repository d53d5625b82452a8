// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of inference on a GPU, on the host.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ops/cuda/cache_places.h"
#include "ops/cuda/code_places.h"
#include "ops/cuda/pass_tables.h"

namespace zero::cuda {
namespace {

// Bytes [begin, begin + count) are inside, and nothing else has them.
void take(std::vector<int>& bytes, std::int64_t begin, std::int64_t count) {
  ASSERT_GE(begin, 0);
  ASSERT_LE(begin + count, std::ssize(bytes));
  for (std::int64_t i = begin; i < begin + count; ++i) ++bytes[static_cast<std::size_t>(i)];
}

TEST(CodePlaces, GiveEachCodeAndScaleBytesOfItsOwn) {
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4}) {
    for (const auto& [in, out] : {std::pair{1, 1}, {33, 70}, {768, 5}, {1100, 33}, {2100, 40}}) {
      const CodePlaces places(format, in, out);
      std::vector<int> bytes(static_cast<std::size_t>(places.bytes()));
      const std::int64_t group = format == WeightFormat::int8 ? in : scale_group(format);
      for (std::int64_t column = 0; column < out; ++column) {
        for (std::int64_t depth = 0; depth < in; ++depth) {
          if (code_bits(format) == 8 || depth % 2 == 0) take(bytes, places.code(column, depth), 1);
          // A thread's codes lie together, at a multiple of their size, and have one scale.
          const std::int64_t first = depth / codes_at_once(format) * codes_at_once(format);
          ASSERT_EQ(places.code(column, first) % kCodeBytes, 0);
          ASSERT_EQ(places.code(column, depth),
                    places.code(column, first) + (depth - first) * code_bits(format) / 8);
          ASSERT_EQ(depth / group, first / group);
        }
        for (std::int64_t i = 0; i < div_ceil(in, group); ++i) {
          ASSERT_EQ(places.scale(column, i) % places.scale_bytes(), 0);
          take(bytes, places.scale(column, i), places.scale_bytes());
        }
      }
      for (std::int64_t scale_block = 0;
           format == WeightFormat::nf4 && scale_block < places.scale_blocks(); ++scale_block) {
        for (std::int64_t column = 0; column < out; column += kRangeColumns) {
          ASSERT_EQ(places.range(column, scale_block) % 4, 0);
          take(bytes, places.range(column, scale_block), 8);
        }
      }
      for (const int uses : bytes) ASSERT_LE(uses, 1);
    }
  }
}

template <int pack>
void expect_places_of_their_own(const CacheShape& shape, std::int32_t blocks) {
  const CachePlaces<pack> places(shape);
  const auto width = static_cast<int>(shape.head_width);
  const auto tokens = static_cast<int>(shape.block_tokens);
  std::vector<int> elements(
      static_cast<std::size_t>(blocks * shape.block_bytes() / size_of(shape.dtype)));
  for (int position = 0; position < blocks * tokens; ++position) {
    const auto block = static_cast<std::int32_t>(places.entry(position));
    for (int head = 0; head < static_cast<int>(shape.kv_heads); ++head) {
      const std::int64_t chunk = places.chunk(block, head, position);
      for (int i = 0; i < width; ++i) {
        take(elements, chunk + places.key(position, i), 1);
        take(elements, chunk + places.value(position, i), 1);
        if (i >= width / pack * pack) continue;
        ASSERT_EQ(places.whole_key(position, i), places.key(position, i));
        ASSERT_EQ((chunk + places.key(position, i)) % pack, i % pack);
      }
    }
  }
  for (const int uses : elements) ASSERT_EQ(uses, 1);
}

TEST(CachePlaces, GiveEachElementOneOfItsOwnAndUseAll) {
  for (const int width : {1, 6, 14, 16, 20, 64}) {
    for (const int tokens : {16, 48}) {
      expect_places_of_their_own<4>({2, width, tokens, DType::fp32}, 3);
      expect_places_of_their_own<8>({3, width, tokens, DType::bf16}, 2);
    }
  }
}

/// A pass of sequences of so many rows behind so many positions.
class Planned {
 public:
  Planned(const PassLimits& limits, const std::vector<std::pair<int, int>>& sequences)
      : limits_(limits), planner_(limits) {
    std::int64_t row = 0;
    for (const auto& [count, position] : sequences) {
      const std::int64_t blocks = div_ceil(position + count, limits.cache.block_tokens);
      tables_.emplace_back(static_cast<std::size_t>(blocks));
    }
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto& [count, position] = sequences[i];
      pass_.sequences.push_back({row, count, position, tables_[i]});
      row += count;
    }
    plan_ = planner_.plan(pass_);
  }

  /// Every query of every row is in one tile, or in one tile for each of its splits, which add up.
  void expect_whole() {
    const std::int64_t queries_per_kv = limits_.heads / limits_.cache.kv_heads;
    EXPECT_LE(std::ssize(plan_.few) + std::ssize(plan_.many), planner_.most_tiles());
    for (const AttentionTile& tile : plan_.few) add(tile, planner_.few_queries());
    for (const AttentionTile& tile : plan_.many) {
      EXPECT_EQ(tile.split, -1);
      add(tile, planner_.many_queries());
    }
    std::int64_t table = 0;
    for (const SequenceRows& sequence : pass_.sequences) {
      for (std::int64_t query = 0; query < sequence.count * queries_per_kv; ++query) {
        const std::int64_t row = sequence.first + query / queries_per_kv;
        const auto found = found_.find({row, query % queries_per_kv});
        ASSERT_NE(found, found_.end());
        EXPECT_EQ(found->second.position, sequence.position + query / queries_per_kv);
        EXPECT_EQ(found->second.table, table);
      }
      table += std::ssize(sequence.blocks);
    }
    EXPECT_EQ(std::ssize(found_), rows() * queries_per_kv);
    for (const SplitQuery& query : plan_.splits) expect_all_splits(query);
    EXPECT_EQ(std::ssize(split_), std::ssize(plan_.splits));
  }
  const AttentionPlan& plan() const { return plan_; }

 private:
  using Query = std::pair<std::int64_t, std::int64_t>;  // row, head of queries a key/value head
  struct Found {
    std::int64_t position = 0;
    std::int64_t table = 0;
  };

  std::int64_t rows() const {
    std::int64_t rows = 0;
    for (const SequenceRows& sequence : pass_.sequences) rows += sequence.count;
    return rows;
  }
  void add(const AttentionTile& tile, int most) {
    EXPECT_GE(tile.queries, 1);
    EXPECT_LE(tile.queries, most);
    const std::int64_t queries_per_kv = limits_.heads / limits_.cache.kv_heads;
    for (std::int64_t i = tile.query; i < tile.query + tile.queries; ++i) {
      const Query query{tile.row + i / queries_per_kv, i % queries_per_kv};
      const bool is_new =
          found_.insert({query, {tile.position + i / queries_per_kv, tile.table}}).second;
      EXPECT_TRUE(is_new || tile.split > 0);
      if (tile.split < 0) continue;
      const std::int64_t slot = tile.parts + i - tile.query;
      EXPECT_LT(slot, planner_.slots());
      EXPECT_TRUE(slots_.insert(slot).second);
      EXPECT_TRUE(split_[query].insert({tile.split, slot}).second);
    }
  }
  void expect_all_splits(const SplitQuery& query) {
    const auto& slots = split_.at({query.row, query.head});
    ASSERT_EQ(std::ssize(slots), query.splits);
    for (int i = 0; i < query.splits; ++i) EXPECT_EQ(slots.at(i), query.parts + i * query.stride);
    EXPECT_EQ(query.position, found_.at({query.row, query.head}).position);
    EXPECT_GE(query.splits * kSplit, query.position + 1);
  }

  PassLimits limits_;
  AttentionPlanner planner_;
  std::vector<std::vector<std::int32_t>> tables_;
  PassRows pass_;
  AttentionPlan plan_;
  std::map<Query, Found> found_;
  std::map<Query, std::map<std::int64_t, std::int64_t>> split_;  // slots of splits
  std::set<std::int64_t> slots_;
};

TEST(AttentionPlanner, CoversEachQueryAndSplitOnce) {
  const std::vector<std::pair<int, int>> sequences{{1, 0},   {1, 127}, {1, 128}, {40, 100},
                                                   {3, 126}, {1, 999}, {2, 500}, {17, 0}};
  for (const auto& [heads, kv_heads] : {std::pair{3, 3}, {8, 2}, {12, 2}, {40, 2}}) {
    for (const int width : {64, 200}) {
      const PassLimits limits{.cache = {kv_heads, width, 32},
                              .heads = heads,
                              .rows = 66,
                              .sequences = 8,
                              .tokens = 1000};
      Planned planned(limits, sequences);
      planned.expect_whole();
      EXPECT_FALSE(planned.plan().splits.empty());
    }
  }
}

TEST(AttentionPlanner, ComputesInOneBlockWhatHasNoRoomForPartialResults) {
  const PassLimits limits{
      .cache = {4, 64, 32}, .heads = 4, .rows = 300, .sequences = 300, .tokens = 1 << 20};
  Planned planned(limits, std::vector<std::pair<int, int>>(300, {1, (1 << 13) - 1}));
  planned.expect_whole();
  EXPECT_EQ(planned.plan().splits.size(), 8192U / 64);
  EXPECT_EQ(planned.plan().few.size(), 8192U + 300 - 8192 / 64);
}

}  // namespace
}  // namespace zero::cuda
