// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/key_value_cache.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/errors.h"
#include "tests/inference/hashed_cache.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST(KeyValueCache, EqualBeginningsAreStoredOnce) {
  HashedCache of(sized(32, 40));
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
  HashedCache of(sized(2, 12));
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
  HashedCache of(sized(3, 8));
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
  EXPECT_EQ(of.cache.cached_prefix(tokens).tokens, 16);
  of.expect_whole();
}

TEST(KeyValueCache, WhatNobodyUsesIsKeptUntilItsMemoryIsNeeded) {
  HashedCache of(sized(2, 8));
  const Tokens old = range(0, 49);
  const Tokens recent = range(1000, 33);
  for (const Tokens& tokens : {old, recent}) {
    const std::int64_t slot = of.open();
    of.append(slot, tokens);
    of.close(slot);
  }
  EXPECT_EQ(of.cache.usage().used, 0);
  EXPECT_EQ(of.cache.usage().cached, 5);
  EXPECT_EQ(of.cache.cached_prefix(old).tokens, 48);
  EXPECT_EQ(of.cache.cached_prefix(old).unused_blocks, 3);
  // Three blocks were never used; the fourth is the end of the one that is unused for longest.
  const std::int64_t slot = of.open();
  of.append(slot, range(2000, 64));
  EXPECT_EQ(of.cache.usage().forgotten, 1);
  EXPECT_EQ(of.cache.cached_prefix(old).tokens, 32);
  EXPECT_EQ(of.cache.cached_prefix(recent).tokens, 32);
  const std::int64_t again = of.open(old);
  EXPECT_EQ(of.cache.length(again), 32);
  EXPECT_EQ(of.cache.usage().cached, 2);
  of.append(again, {old.begin() + 32, old.end()});
  EXPECT_EQ(of.cache.cached_prefix(recent).tokens, 0);
  of.expect_whole();
}

TEST(KeyValueCache, TheLastTokenIsNeverFound) {
  HashedCache of(sized(1, 8));
  const Tokens tokens = range(0, 32);
  const std::int64_t slot = of.open();
  of.append(slot, tokens);
  of.close(slot);
  EXPECT_EQ(of.cache.cached_prefix(tokens).tokens, 16);
  EXPECT_EQ(of.cache.cached_prefix(range(0, 33)).tokens, 32);
  EXPECT_EQ(of.cache.cached_prefix(range(0, 16)).tokens, 0);
  EXPECT_EQ(of.cache.cached_prefix({}).tokens, 0);
}

TEST(KeyValueCache, AfterAPassThatFailedNothingIsKnown) {
  HashedCache of(sized(2, 8));
  const Tokens tokens = range(0, 40);
  const std::int64_t slot = of.open();
  of.append(slot, tokens);
  of.cache.forget();
  EXPECT_EQ(of.cache.cached_prefix(tokens).tokens, 0);
  of.append(slot, range(50, 30));  // behind blocks that are unknown, none is known
  EXPECT_EQ(of.cache.usage().cached, 0);
  of.close(slot);
  EXPECT_EQ(of.cache.usage().cached, 0);
  EXPECT_EQ(of.cache.available_blocks(), 8);
}

TEST(KeyValueCache, RefusesWhatDoesNotFitAndChangesNothing) {
  HashedCache of(sized(2, 7));
  const std::int64_t a = of.open();
  of.append(a, range(0, 90));
  const std::int64_t b = of.open();
  EXPECT_THAT(error_of([&] { of.cache.append(b, range(0, 17)); }),
              HasSubstr("the cache has 1 blocks left of 7, and 17 tokens of slot 1 take 2"));
  EXPECT_THAT(error_of([&] { of.cache.append(a, range(0, 11)); }),
              HasSubstr("the cache holds 90 tokens of slot 0, and 11 more; expected at most 100"));
  EXPECT_THAT(error_of([&] { of.cache.open(); }), HasSubstr("no free slot of 2"));
  EXPECT_THAT(error_of([&] { of.cache.trim(a, 91); }),
              HasSubstr("slot 0 of the cache is trimmed to 91 tokens; expected 0 to 90"));
  of.close(b);
  EXPECT_THAT(error_of([&] { of.cache.length(b); }),
              HasSubstr("the cache has no sequence in slot 1"));
  of.expect_whole();
  const auto device = cpu::open();
  EXPECT_THAT(error_of([&] { KeyValueCache(*device, sized(1, 6)); }),
              HasSubstr("the cache has 6 blocks of 16 tokens; expected at least 7, for the longest "
                        "sequence of 100 tokens"));
}

}  // namespace
}  // namespace zero::testing
