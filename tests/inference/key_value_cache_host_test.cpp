// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// What the cache keeps in host memory, and sequences opened, written and closed at random.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "tests/inference/hashed_cache.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

// Reads tokens and closes their sequence.
void read(HashedCache& of, const Tokens& tokens) {
  const std::int64_t slot = of.open(tokens);
  of.append(slot, {tokens.begin() + of.cache.length(slot), tokens.end()});
  of.close(slot);
}

TEST(HostBlocks, KeepWhatTheDeviceCannotAndGiveItBack) {
  HashedCache of(sized(2, 8, 8));
  const Tokens old = range(0, 97);
  read(of, old);
  read(of, range(1000, 97));  // 7 blocks, and only 2 are free
  EXPECT_EQ(of.cache.usage().moved_out, 5);
  EXPECT_EQ(of.cache.usage().host_used, 5);
  EXPECT_EQ(of.cache.usage().forgotten, 0);
  const BlockPool::Prefix known = of.cache.cached_prefix(old);
  EXPECT_EQ(known.tokens, 96);
  EXPECT_EQ(known.host_blocks, 5);
  EXPECT_EQ(known.unused_blocks, 1);  // ends made way first
  const std::int64_t slot = of.open(old);
  EXPECT_EQ(of.cache.length(slot), 96);
  EXPECT_EQ(of.cache.usage().moved_back, 5);
  EXPECT_EQ(of.cache.usage().used, 6);
  of.expect_whole();
  of.close(slot);
  EXPECT_EQ(of.cache.cached_prefix(range(1000, 97)).tokens, 96);  // has changed places with it
}

TEST(HostBlocks, ForgetWhatIsLongestUnused) {
  HashedCache of(sized(1, 7, 4));
  for (std::uint32_t i = 0; i < 3; ++i) read(of, range(1000 * i, 65));  // 4 whole blocks each
  // 12 blocks in turn, of which 7 + 4 hold what was used last; the end of the first went first.
  EXPECT_EQ(of.cache.usage().forgotten, 2);
  EXPECT_EQ(of.cache.cached_prefix(range(0, 65)).tokens, 32);
  EXPECT_EQ(of.cache.cached_prefix(range(1000, 65)).tokens, 64);
  EXPECT_EQ(of.cache.cached_prefix(range(2000, 65)).tokens, 64);
}

// The host is full of blocks that come back, so that the first block which makes way is forgotten.
TEST(HostBlocks, ChangePlacesWithThoseOfTheDevice) {
  HashedCache of(sized(2, 7, 6));
  const Tokens old = range(0, 97);
  const Tokens recent = range(1000, 96);
  read(of, old);
  of.append(of.open(), {5});
  read(of, recent);
  EXPECT_EQ(of.cache.cached_prefix(old).host_blocks, 6);
  const std::int64_t slot = of.open(old);
  EXPECT_EQ(of.cache.length(slot), 96);
  of.expect_whole();
  EXPECT_EQ(of.cache.usage().forgotten, 1);
  EXPECT_EQ(of.cache.usage().host_used, 5);
  of.close(slot);
  EXPECT_EQ(of.cache.cached_prefix(recent).tokens, 80);
}

TEST(HostBlocks, ComeBackAsFarAsThereIsRoom) {
  HashedCache of(sized(2, 8, 12));
  const Tokens tokens = range(0, 97);
  read(of, tokens);
  const std::int64_t other = of.open();
  of.append(other, range(1000, 96));
  of.trim(other, 80);
  EXPECT_EQ(of.cache.available_blocks(), 3);
  const BlockPool::Prefix known = of.cache.cached_prefix(tokens);
  EXPECT_EQ(known.tokens, 48);
  EXPECT_EQ(known.host_blocks + known.unused_blocks, 3);
  const std::int64_t slot = of.open(tokens);
  EXPECT_EQ(of.cache.length(slot), 48);
  EXPECT_EQ(of.cache.available_blocks(), 0);
  of.expect_whole();
}

// Read again beside what the host holds, as the end of a prompt is: known once.
TEST(HostBlocks, AreFreeOnceTheirTokensAreReadAgain) {
  HashedCache of(sized(2, 8, 8));
  const Tokens tokens = range(0, 96);
  read(of, tokens);
  read(of, range(1000, 96));
  const std::int64_t moved = of.cache.usage().host_used;
  EXPECT_EQ(moved, 4);
  const std::int64_t slot = of.open();
  of.append(slot, tokens);
  EXPECT_EQ(of.cache.usage().moved_back, 0);
  of.expect_whole();
  of.close(slot);
  EXPECT_EQ(of.cache.cached_prefix(range(0, 97)).tokens, 96);
  EXPECT_EQ(of.cache.cached_prefix(range(0, 97)).host_blocks, 0);
}

TEST(HostBlocks, AreForgottenAfterAPassThatFailed) {
  HashedCache of(sized(2, 8, 8));
  read(of, range(0, 97));
  read(of, range(1000, 97));
  of.cache.forget();
  EXPECT_EQ(of.cache.usage().host_used, 0);
  EXPECT_EQ(of.cache.cached_prefix(range(0, 97)).tokens, 0);
  read(of, range(0, 97));
  EXPECT_EQ(of.cache.cached_prefix(range(0, 97)).tokens, 96);
}

TEST(HostBlocks, AreChargedApart) {
  HashedCache of(sized(2, 8, 5));
  const std::int64_t block = 2 * of.cache.shape().block_bytes();
  const auto labels = of.device().ledger().snapshot().labels;
  EXPECT_EQ(labels.at("activations/key_value_cache"), 8 * block);
  EXPECT_EQ(labels.at("activations/host_key_value_cache"), 5 * block);
  const std::int64_t allocations = of.device().ledger().allocations();
  for (std::uint32_t i = 0; i < 4; ++i) read(of, range(1000 * i, 97));
  EXPECT_GT(of.cache.usage().moved_out, 0);
  EXPECT_EQ(of.device().ledger().allocations(), allocations);
}

// Few different texts, so that beginnings meet, and few blocks, so that they move and are
// forgotten; on a device whose work runs late, too, and whose memory the host cannot access.
class RandomUse : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  std::int64_t below(std::int64_t most) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint32_t>(most));
  }
  /// Tokens of one of five texts, whose first 23 * text tokens are those of others.
  static Tokens tokens(std::int64_t text, std::int64_t first, std::int64_t count) {
    Tokens made;
    for (std::int64_t i = first; i < first + count; ++i) {
      made.push_back(static_cast<std::uint32_t>(i < 23 * text ? 50 : text));
    }
    return made;
  }
  static std::unique_ptr<Device> device(int seed) {
    if (seed % 2 == 0) return cpu::open();
    return open({.policy = StreamOrder::Policy::seeded,
                 .seed = static_cast<std::uint64_t>(seed),
                 .memory = MemorySpace::device});
  }
  void open_one() {
    const Tokens wanted = tokens(below(5), 0, 1 + below(90));
    KeyValueCache& cache = of_.cache;
    const BlockPool::Prefix known = cache.cached_prefix(wanted);
    const KeyValueCache::Usage before = cache.usage();
    const std::int64_t slot = of_.open(wanted);
    ASSERT_EQ(cache.length(slot), known.tokens);
    ASSERT_EQ(cache.usage().used, before.used + known.unused_blocks + known.host_blocks);
    ASSERT_EQ(cache.usage().moved_back, before.moved_back + known.host_blocks);
  }
  void append_some(std::int64_t slot) {
    KeyValueCache& cache = of_.cache;
    const std::int64_t length = cache.length(slot);
    const Tokens more =
        tokens(below(5), length, below(std::min<std::int64_t>(30, 100 - length) + 1));
    const std::int64_t needed = cache.blocks_needed(slot, std::ssize(more));
    const std::int64_t available = cache.available_blocks();
    if (needed > available) return;
    of_.append(slot, more);
    ASSERT_GE(cache.available_blocks(), available - needed);
  }
  void act() {
    const std::int64_t chosen = below(10);
    if (chosen < 2 && of_.cache.free_slots() > 0) return open_one();
    if (of_.held().empty()) return;
    const std::int64_t slot = std::next(of_.held().begin(), below(std::ssize(of_.held())))->first;
    if (chosen < 3) return of_.close(slot);
    if (chosen == 3) return of_.trim(slot, below(of_.cache.length(slot) + 1));
    append_some(slot);
  }

  const int seed_ = std::get<0>(GetParam());
  std::mt19937 random_{static_cast<std::uint32_t>(seed_)};
  HashedCache of_{sized(4, 12 + seed_ % 5, std::get<1>(GetParam())), device(seed_)};
};

TEST_P(RandomUse, LeavesEverySequenceItsOwn) {
  for (int i = 0; i < 400; ++i) {
    act();
    if (i % 3 == 0) of_.expect_whole();
    if (HasFatalFailure()) FAIL() << "after " << i << " acts";
  }
  const KeyValueCache::Usage usage = of_.cache.usage();
  EXPECT_GT(usage.forgotten, 0);
  EXPECT_EQ(usage.moved_back > 0, usage.host_total > 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomUse,
                         ::testing::Combine(::testing::Range(0, 12), ::testing::Values(0, 4, 20)));

}  // namespace
}  // namespace zero::testing
