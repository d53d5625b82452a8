// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/key_value_cache.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "base/mixed_bits.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<std::uint32_t>;

Tokens range(std::uint32_t first, std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// A cache whose every position holds a hash of the tokens up to it, as a pass would write it.
class Cache {
 public:
  explicit Cache(const KeyValueCache::Size& size) : cache(*device_, size) {}

  void append(std::int64_t slot, const Tokens& tokens) {
    Tokens& all = held_[slot];
    cache.append(slot, tokens);
    all.insert(all.end(), tokens.begin(), tokens.end());
    device_->compute().synchronize();
    for (std::size_t i = all.size() - tokens.size(); i < all.size(); ++i) {
      for (std::int64_t layer = 0; layer < layers(); ++layer)
        value(slot, layer, i) = expected(all, layer, i);
    }
  }
  std::int64_t open(const Tokens& tokens = {}) {
    const std::int64_t slot = cache.open(tokens);
    held_[slot].assign(tokens.begin(), tokens.begin() + cache.length(slot));
    return slot;
  }
  void trim(std::int64_t slot, std::int64_t length) {
    cache.trim(slot, length);
    held_[slot].resize(static_cast<std::size_t>(length));
  }
  void close(std::int64_t slot) {
    cache.close(slot);
    held_.erase(slot);
  }
  /// Every sequence finds what its own tokens mean, whoever wrote it; counts are right.
  void expect_whole() {
    device_->compute().synchronize();
    std::set<std::int32_t> used;
    std::int64_t tokens = 0;
    for (const auto& [slot, all] : held_) {
      ASSERT_EQ(cache.length(slot), std::ssize(all));
      tokens += std::ssize(all);
      const auto table = cache.blocks(slot);
      ASSERT_LT(std::ssize(table) * block_tokens() - std::ssize(all), block_tokens());
      used.insert(table.begin(), table.end());
      for (std::int64_t layer = 0; layer < layers(); ++layer) {
        for (std::size_t i = 0; i < all.size(); ++i) {
          ASSERT_EQ(value(slot, layer, i), expected(all, layer, i))
              << "slot " << slot << ", layer " << layer << ", position " << i;
        }
      }
    }
    const KeyValueCache::Usage usage = cache.usage();
    ASSERT_EQ(usage.used, std::ssize(used));
    ASSERT_EQ(usage.tokens, tokens);
    ASSERT_EQ(cache.available_blocks(), usage.total - usage.used);
    ASSERT_LE(usage.known, cache.available_blocks());
  }
  const std::map<std::int64_t, Tokens>& held() const { return held_; }

 private:
  static constexpr std::int64_t kLayers = 2;
  std::int64_t layers() const { return kLayers; }
  std::int64_t block_tokens() const { return cache.shape().block_tokens; }
  static std::uint64_t expected(const Tokens& tokens, std::int64_t layer, std::size_t position) {
    std::uint64_t hash = static_cast<std::uint64_t>(layer) + 1;
    for (std::size_t i = 0; i <= position; ++i) hash = split_mix(hash, tokens[i]);
    return hash;
  }
  std::uint64_t& value(std::int64_t slot, std::int64_t layer, std::size_t position) {
    const auto in_block = position % static_cast<std::size_t>(block_tokens());
    const std::int32_t block =
        cache.blocks(slot)[position / static_cast<std::size_t>(block_tokens())];
    auto* bytes =
        static_cast<std::byte*>(cache.layer(layer).data()) + block * cache.shape().block_bytes();
    return reinterpret_cast<std::uint64_t*>(bytes)[in_block];
  }

  const std::unique_ptr<Device> device_ = cpu::open();
  std::map<std::int64_t, Tokens> held_;

 public:
  KeyValueCache cache;
};

KeyValueCache::Size sized(std::int64_t slots, std::int64_t blocks) {
  return {.layers = 2,
          .slots = slots,
          .tokens = 100,
          .blocks = blocks,
          .shape = {.kv_heads = 1, .head_width = 1, .block_tokens = 16, .dtype = DType::fp32}};
}

TEST(KeyValueCache, EqualBeginningsAreStoredOnce) {
  Cache of(sized(32, 40));
  const Tokens beginning = range(0, 64);
  std::set<std::int32_t> blocks;
  for (std::uint32_t i = 0; i < 32; ++i) {
    Tokens tokens = beginning;
    tokens.push_back(500 + i);
    const std::int64_t slot = of.open(tokens);
    EXPECT_EQ(of.cache.length(slot), i == 0 ? 0 : 64);
    of.append(slot, {tokens.begin() + of.cache.length(slot), tokens.end()});
    blocks.insert(of.cache.blocks(slot).begin(), of.cache.blocks(slot).begin() + 4);
  }
  EXPECT_EQ(blocks.size(), 4U);
  EXPECT_EQ(of.cache.usage().used, 4 + 32);
  EXPECT_EQ(of.cache.usage().reused, 31 * 64);
  of.expect_whole();
}

// Side by side, so that neither knows the other's beginning when it is opened.
TEST(KeyValueCache, EqualBeginningsWrittenSideBySideBecomeOne) {
  Cache of(sized(2, 12));
  const Tokens tokens = range(7, 40);
  const std::int64_t a = of.open();
  const std::int64_t b = of.open();
  for (std::size_t i = 0; i < tokens.size(); i += 5) {
    for (const std::int64_t slot : {a, b})
      of.append(slot, {tokens.begin() + static_cast<std::ptrdiff_t>(i),
                       tokens.begin() + static_cast<std::ptrdiff_t>(i + 5)});
    of.expect_whole();
  }
  EXPECT_EQ(of.cache.usage().used, 2 + 2);
  EXPECT_EQ(of.cache.blocks(a)[1], of.cache.blocks(b)[1]);
  EXPECT_NE(of.cache.blocks(a)[2], of.cache.blocks(b)[2]);
}

TEST(KeyValueCache, ASharedBlockIsCopiedBeforeItIsWritten) {
  Cache of(sized(3, 8));
  Tokens tokens = range(1, 33);
  const std::int64_t a = of.open();
  of.append(a, tokens);
  const std::int64_t b = of.open(tokens);
  EXPECT_EQ(of.cache.length(b), 32);
  const std::int32_t shared = of.cache.blocks(b)[1];
  EXPECT_EQ(of.cache.blocks(a)[1], shared);
  of.trim(b, 20);
  EXPECT_EQ(of.cache.blocks_needed(b, 1), 1);
  of.append(b, range(900, 30));
  EXPECT_NE(of.cache.blocks(b)[1], shared);
  EXPECT_EQ(of.cache.blocks(a)[1], shared);
  of.expect_whole();
  // Alone, a sequence writes where it is, and what it overwrites is known no more.
  of.close(b);
  of.trim(a, 20);
  EXPECT_EQ(of.cache.blocks_needed(a, 1), 0);
  of.append(a, range(700, 12));
  EXPECT_EQ(of.cache.blocks(a)[1], shared);
  EXPECT_EQ(of.cache.known(tokens).tokens, 16);
  of.expect_whole();
}

TEST(KeyValueCache, WhatNobodyUsesIsKeptUntilItsMemoryIsNeeded) {
  Cache of(sized(2, 8));
  const Tokens old = range(0, 49);
  const Tokens recent = range(1000, 33);
  for (const Tokens& tokens : {old, recent}) {
    const std::int64_t slot = of.open();
    of.append(slot, tokens);
    of.close(slot);
  }
  EXPECT_EQ(of.cache.usage().used, 0);
  EXPECT_EQ(of.cache.usage().known, 5);
  EXPECT_EQ(of.cache.known(old).tokens, 48);
  EXPECT_EQ(of.cache.known(old).unused_blocks, 3);
  // Three blocks were never used; the fourth is the end of the one that is unused for longest.
  const std::int64_t slot = of.open();
  of.append(slot, range(2000, 64));
  EXPECT_EQ(of.cache.usage().evictions, 1);
  EXPECT_EQ(of.cache.known(old).tokens, 32);
  EXPECT_EQ(of.cache.known(recent).tokens, 32);
  const std::int64_t again = of.open(old);
  EXPECT_EQ(of.cache.length(again), 32);
  EXPECT_EQ(of.cache.usage().known, 2);
  of.append(again, {old.begin() + 32, old.end()});
  EXPECT_EQ(of.cache.known(recent).tokens, 0);
  of.expect_whole();
}

TEST(KeyValueCache, TheLastTokenIsNeverFound) {
  Cache of(sized(1, 8));
  const Tokens tokens = range(0, 32);
  const std::int64_t slot = of.open();
  of.append(slot, tokens);
  of.close(slot);
  EXPECT_EQ(of.cache.known(tokens).tokens, 16);
  EXPECT_EQ(of.cache.known(range(0, 33)).tokens, 32);
  EXPECT_EQ(of.cache.known(range(0, 16)).tokens, 0);
  EXPECT_EQ(of.cache.known({}).tokens, 0);
}

TEST(KeyValueCache, AfterAPassThatFailedNothingIsKnown) {
  Cache of(sized(2, 8));
  const Tokens tokens = range(0, 40);
  const std::int64_t slot = of.open();
  of.append(slot, tokens);
  of.cache.forget();
  EXPECT_EQ(of.cache.known(tokens).tokens, 0);
  of.append(slot, range(50, 30));  // behind blocks that are unknown, none is known
  EXPECT_EQ(of.cache.usage().known, 0);
  of.close(slot);
  EXPECT_EQ(of.cache.usage().known, 0);
  EXPECT_EQ(of.cache.available_blocks(), 8);
}

TEST(KeyValueCache, RefusesWhatDoesNotFitAndChangesNothing) {
  Cache of(sized(2, 7));
  const std::int64_t a = of.open();
  of.append(a, range(0, 90));
  const std::int64_t b = of.open();
  EXPECT_THAT(message_of([&] { of.cache.append(b, range(0, 17)); }),
              HasSubstr("the cache has 1 blocks left of 7, and 17 tokens of slot 1 take 2"));
  EXPECT_THAT(message_of([&] { of.cache.append(a, range(0, 11)); }),
              HasSubstr("the cache holds 90 tokens of slot 0, and 11 more; expected at most 100"));
  EXPECT_THAT(message_of([&] { of.cache.open(); }), HasSubstr("no free slot of 2"));
  EXPECT_THAT(message_of([&] { of.cache.trim(a, 91); }),
              HasSubstr("slot 0 of the cache is trimmed to 91 tokens; expected 0 to 90"));
  of.close(b);
  EXPECT_THAT(message_of([&] { of.cache.length(b); }),
              HasSubstr("the cache has no sequence in slot 1"));
  of.expect_whole();
  const auto device = cpu::open();
  EXPECT_THAT(message_of([&] { KeyValueCache(*device, sized(1, 6)); }),
              HasSubstr("the cache has 6 blocks of 16 tokens; expected at least 7, for the longest "
                        "sequence of 100 tokens"));
}

// Few different tokens, so that beginnings meet, and few blocks, so that they are evicted.
class RandomUse : public ::testing::TestWithParam<int> {};

TEST_P(RandomUse, LeavesEverySequenceItsOwn) {
  std::mt19937 random(static_cast<std::uint32_t>(GetParam()));
  const auto below = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(most));
  };
  Cache of(sized(4, 12 + GetParam() % 5));
  const auto tokens = [&](std::int64_t count) {
    Tokens made(static_cast<std::size_t>(count));
    const auto kind = static_cast<std::uint32_t>(below(2));
    for (std::uint32_t& token : made) token = below(40) == 0 ? 9 : kind;
    return made;
  };
  for (int i = 0; i < 400; ++i) {
    const auto chosen = [&] {
      return std::next(of.held().begin(), below(std::ssize(of.held())))->first;
    };
    const std::int64_t act = below(8);
    if (act == 0 && of.cache.free_slots() > 0) {
      const Tokens wanted = tokens(1 + below(90));
      const KeyValueCache::Known known = of.cache.known(wanted);
      const std::int64_t available = of.cache.available_blocks();
      const std::int64_t slot = of.open(wanted);
      ASSERT_EQ(of.cache.length(slot), known.tokens);
      ASSERT_EQ(of.cache.available_blocks(), available - known.unused_blocks);
    } else if (of.held().empty()) {
      continue;
    } else if (act == 1) {
      of.close(chosen());
    } else if (act == 2) {
      const std::int64_t slot = chosen();
      of.trim(slot, below(of.cache.length(slot) + 1));
    } else {
      const std::int64_t slot = chosen();
      const Tokens more =
          tokens(below(std::min<std::int64_t>(30, 100 - of.cache.length(slot)) + 1));
      const std::int64_t needed = of.cache.blocks_needed(slot, std::ssize(more));
      const std::int64_t available = of.cache.available_blocks();
      if (needed > available) continue;
      of.append(slot, more);
      ASSERT_GE(of.cache.available_blocks(), available - needed);
    }
    of.expect_whole();
    if (HasFatalFailure()) FAIL() << "after " << i << " acts";
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomUse, ::testing::Range(0, 12));

}  // namespace
}  // namespace zero::testing
