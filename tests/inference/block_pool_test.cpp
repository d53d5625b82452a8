// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <optional>
#include <utility>

#include "base/consecutive.h"
#include "inference/key_value_cache.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::int64_t kBlockTokens = 4;  // of a block

class BlockPools : public ::testing::Test {
 protected:
  using Table = std::vector<std::int32_t>;

  void make(std::int64_t blocks, std::int64_t host_blocks) {
    pool_.emplace(BlockPool::Size{kBlockTokens, blocks, host_blocks},
                  [this](std::int32_t from, std::int32_t to) { copies_.emplace_back(from, to); });
  }
  /// `count` whole blocks of the tokens first, first + 1, ...
  static std::vector<std::uint32_t> text(std::uint32_t first, std::size_t count) {
    return consecutive(first, count * kBlockTokens);
  }
  /// The blocks of a sequence that writes `tokens`, whole blocks.
  Table write(const std::vector<std::uint32_t>& tokens) {
    Table table;
    for (std::size_t i = 0; i < tokens.size(); i += kBlockTokens) {
      table.push_back(pool_->take());
      table.back() = pool_->publish(table, std::span(tokens).subspan(i, kBlockTokens));
    }
    return table;
  }
  void release(Table table) {
    for (; !table.empty(); table.pop_back()) pool_->release(table.back());
  }
  /// What is cached of the tokens, all of them.
  BlockPool::Prefix cached(std::vector<std::uint32_t> tokens) {
    tokens.push_back(0);  // the last token is never found
    return pool_->cached_prefix(tokens);
  }

  std::optional<BlockPool> pool_;
  std::vector<std::pair<std::int32_t, std::int32_t>> copies_;
};

TEST_F(BlockPools, SequencesShareAPrefix) {
  make(8, 0);
  const Table first = write(text(0, 3));
  BlockPool::Prefix prefix = cached(text(0, 2));
  EXPECT_EQ(prefix.tokens, 2 * kBlockTokens);
  EXPECT_EQ(prefix.unused_blocks, 0);
  EXPECT_THAT(prefix.blocks, ElementsAre(first[0], first[1]));
  pool_->acquire(prefix.blocks);
  EXPECT_TRUE(pool_->is_shared(first[1]));
  EXPECT_FALSE(pool_->is_shared(first[2]));
  EXPECT_EQ(pool_->usage().used, 3);
  release(first);
  EXPECT_EQ(pool_->usage().used, 2);
  EXPECT_EQ(pool_->usage().cached, 1);
  EXPECT_THAT(copies_, IsEmpty());
}

TEST_F(BlockPools, EqualContentIsPublishedOnce) {
  make(8, 0);
  const Table first = write(text(0, 2));
  EXPECT_EQ(write(text(0, 2)), first);
  EXPECT_EQ(pool_->usage().used, 2);
  EXPECT_EQ(pool_->available(), 6);
}

TEST_F(BlockPools, EqualTokensBehindOthersAreOtherContent) {
  make(8, 0);
  const Table first = write(text(0, 2));
  std::vector<std::uint32_t> tokens = text(100, 1);
  const std::vector<std::uint32_t> end = text(kBlockTokens, 1);
  tokens.insert(tokens.end(), end.begin(), end.end());
  EXPECT_NE(write(tokens)[1], first[1]);
}

TEST_F(BlockPools, LeastRecentlyUsedIsEvictedFirstAndEndsBeforeBeginnings) {
  make(4, 0);
  release(write(text(0, 2)));
  release(write(text(100, 2)));
  BlockPool::Prefix used_again = cached(text(0, 1));
  pool_->acquire(used_again.blocks);
  release(used_again.blocks);
  pool_->take();
  EXPECT_EQ(cached(text(0, 2)).tokens, kBlockTokens);
  EXPECT_EQ(cached(text(100, 2)).tokens, 2 * kBlockTokens);
  pool_->take();
  EXPECT_EQ(cached(text(100, 2)).tokens, kBlockTokens);
  pool_->take();
  EXPECT_EQ(cached(text(100, 2)).tokens, 0);
  EXPECT_EQ(cached(text(0, 2)).tokens, kBlockTokens);
  EXPECT_EQ(pool_->usage().forgotten, 3);
}

TEST_F(BlockPools, EvictedContentMovesToTheHostAndBack) {
  make(2, 2);
  const Table table = write(text(0, 2));
  release(table);
  const Table other{pool_->take(), pool_->take()};
  EXPECT_THAT(copies_, ElementsAre(Pair(table[1], 2), Pair(table[0], 3)));
  EXPECT_EQ(pool_->usage().host_used, 2);
  EXPECT_EQ(cached(text(0, 2)).tokens, 0);  // no block is available to move to
  release(other);
  BlockPool::Prefix prefix = cached(text(0, 2));
  EXPECT_EQ(prefix.host_blocks, 2);
  EXPECT_THAT(prefix.blocks, ElementsAre(3, 2));
  copies_.clear();
  pool_->acquire(prefix.blocks);
  EXPECT_THAT(copies_, ElementsAre(Pair(3, prefix.blocks[0]), Pair(2, prefix.blocks[1])));
  EXPECT_FALSE(pool_->on_host(prefix.blocks[0]) || pool_->on_host(prefix.blocks[1]));
  EXPECT_EQ(pool_->usage().moved_out, 2);
  EXPECT_EQ(pool_->usage().moved_back, 2);
  EXPECT_EQ(pool_->usage().host_used, 0);
}

TEST_F(BlockPools, APrefixThatComesBackEvictsNoneOfItsBlocks) {
  make(2, 2);
  const Table table = write(text(0, 2));
  for (const std::int32_t block : table) pool_->release(block);  // evicted from its beginning on
  release(write(text(100, 1)));
  BlockPool::Prefix prefix = cached(text(0, 2));
  EXPECT_EQ(prefix.host_blocks, 1);
  EXPECT_EQ(prefix.unused_blocks, 1);
  pool_->acquire(prefix.blocks);
  EXPECT_THAT(prefix.blocks, ElementsAre(table[0], table[1]));
  EXPECT_EQ(cached(text(0, 2)).blocks, prefix.blocks);
  EXPECT_EQ(pool_->usage().used, 2);
}

TEST_F(BlockPools, AFullHostForgetsItsLeastRecentlyUsed) {
  make(2, 1);
  release(write(text(0, 2)));
  release(write(text(100, 2)));
  EXPECT_EQ(pool_->usage().moved_out, 2);
  EXPECT_EQ(pool_->usage().forgotten, 1);
  EXPECT_EQ(cached(text(0, 2)).tokens, kBlockTokens);  // its beginning is on the host
  EXPECT_EQ(cached(text(100, 2)).tokens, 2 * kBlockTokens);
}

TEST_F(BlockPools, ContentWrittenAgainLeavesTheHost) {
  make(2, 2);
  release(write(text(0, 1)));
  release(write(text(100, 2)));
  EXPECT_EQ(cached(text(0, 1)).host_blocks, 1);
  copies_.clear();
  const std::int32_t own = pool_->take();
  const std::size_t evictions = copies_.size();
  EXPECT_EQ(pool_->publish(std::span(&own, 1), text(0, 1)), own);
  EXPECT_EQ(copies_.size(), evictions);
  EXPECT_THAT(cached(text(0, 1)).blocks, ElementsAre(own));
  EXPECT_EQ(pool_->usage().moved_back, 0);
}

TEST_F(BlockPools, UnpublishedBlocksAreFoundNoMore) {
  make(4, 2);
  const Table table = write(text(0, 2));
  pool_->unpublish(table[0]);
  EXPECT_EQ(cached(text(0, 2)).tokens, 0);
  release(table);
  EXPECT_EQ(pool_->usage().cached, 1);
  pool_->unpublish_all();
  EXPECT_EQ(pool_->usage().cached, 0);
  EXPECT_EQ(pool_->available(), 4);
  const Table unknown{pool_->take(), pool_->take()};  // behind unknown content, none is published
  EXPECT_EQ(pool_->publish(unknown, text(kBlockTokens, 1)), unknown[1]);
  release(unknown);
  EXPECT_EQ(pool_->usage().cached, 0);
}

}  // namespace
}  // namespace zero::testing
