// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/consecutive.h"
#include "base/mixed_bits.h"
#include "inference/key_value_cache.h"

namespace zero::testing {

using Tokens = std::vector<std::uint32_t>;

inline Tokens range(std::uint32_t first, std::size_t count) { return consecutive(first, count); }

inline KeyValueCache::Size sized(std::int64_t slots, std::int64_t blocks,
                                 std::int64_t host_blocks = 0) {
  return {.layers = 2,
          .slots = slots,
          .tokens = 100,
          .blocks = blocks,
          .host_blocks = host_blocks,
          .shape = {.kv_heads = 1, .head_width = 1, .block_tokens = 16, .dtype = DType::fp32}};
}

/// A cache whose every position holds a hash of the tokens up to it, written by work of the compute
/// stream, as a pass would.
class HashedCache {
 public:
  explicit HashedCache(const KeyValueCache::Size& size,
                       std::unique_ptr<Device> device = cpu::open())
      : device_(std::move(device)), cache(*device_, size) {}

  void append(std::int64_t slot, const Tokens& tokens) {
    Tokens& all = held_[slot];
    cache.append(slot, tokens);
    const std::size_t before = all.size();
    all.insert(all.end(), tokens.begin(), tokens.end());
    for (std::size_t i = before; i < all.size(); ++i) {
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        device_->compute().submit("write", [at = at(slot, layer, i), hash = hash(all, layer, i)] {
          std::memcpy(at.data(), &hash, sizeof hash);
        });
      }
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
    std::set<std::int32_t> used;
    std::int64_t tokens = 0;
    for (const auto& [slot, all] : held_) {
      ASSERT_EQ(cache.length(slot), std::ssize(all));
      tokens += std::ssize(all);
      const auto table = cache.blocks(slot);
      ASSERT_LT(std::ssize(table) * block_tokens() - std::ssize(all), block_tokens());
      used.insert(table.begin(), table.end());
      expect_hashes(slot, all);
      if (::testing::Test::HasFatalFailure()) return;
    }
    const KeyValueCache::Usage usage = cache.usage();
    ASSERT_TRUE(used.empty() || *used.rbegin() < usage.total);
    ASSERT_EQ(usage.used, std::ssize(used));
    ASSERT_EQ(usage.tokens, tokens);
    ASSERT_EQ(cache.available_blocks(), usage.total - usage.used);
    ASSERT_LE(usage.cached, cache.available_blocks());
    ASSERT_LE(usage.host_used, usage.host_total);
    ASSERT_LE(usage.host_used, usage.moved_out - usage.moved_back);
  }
  const std::map<std::int64_t, Tokens>& held() const { return held_; }
  Device& device() { return *device_; }

 private:
  static constexpr std::int64_t kLayers = 2;
  static constexpr std::int64_t kHash = sizeof(std::uint64_t);

  std::int64_t block_tokens() const { return cache.shape().block_tokens; }
  static std::uint64_t hash(const Tokens& tokens, std::int64_t layer, std::size_t position) {
    std::uint64_t hash = static_cast<std::uint64_t>(layer) + 1;
    for (std::size_t i = 0; i <= position; ++i) hash = split_mix(hash, tokens[i]);
    return hash;
  }
  View at(std::int64_t slot, std::int64_t layer, std::size_t position) const {
    const auto size = static_cast<std::size_t>(block_tokens());
    const std::int32_t block = cache.blocks(slot)[position / size];
    return cache.layer(layer).slice(
        block * cache.shape().block_bytes() + static_cast<std::int64_t>(position % size) * kHash,
        kHash);
  }
  void expect_hashes(std::int64_t slot, const Tokens& all) {
    std::vector<std::uint64_t> found(all.size() * kLayers);
    const auto bytes = [&](std::size_t i) {
      return View::of(std::span(reinterpret_cast<std::uint8_t*>(&found[i]), kHash));
    };
    for (std::size_t i = 0; i < found.size(); ++i) {
      const View from = at(slot, static_cast<std::int64_t>(i % kLayers), i / kLayers);
      device_->kernels().convert(device_->compute(), from, bytes(i));
    }
    device_->compute().synchronize();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto layer = static_cast<std::int64_t>(i % kLayers);
      ASSERT_EQ(found[i], hash(all, layer, i / kLayers))
          << "slot " << slot << ", layer " << layer << ", position " << i / kLayers;
    }
  }

  const std::unique_ptr<Device> device_;
  std::map<std::int64_t, Tokens> held_;

 public:
  KeyValueCache cache;
};

}  // namespace zero::testing
