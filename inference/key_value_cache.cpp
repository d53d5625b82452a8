// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/key_value_cache.h"

#include <numeric>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {
namespace {

KeyValueCache::Size in_whole_groups(KeyValueCache::Size size) {
  size.shape.block_tokens = round_up(size.tokens, kCacheGroup);
  return size;
}

}  // namespace

KeyValueCache::KeyValueCache(Device& device, const Size& size)
    : size_(in_whole_groups(size)),
      memory_(device.allocate(
          checked_mul(checked_mul(size_.layers, size_.slots), size_.shape.block_count()),
          size_.shape.dtype, MemoryClass::activations, "key_value_cache")),
      table_(static_cast<std::size_t>(size_.slots)),
      lengths_(static_cast<std::size_t>(size_.slots), 0) {
  std::iota(table_.begin(), table_.end(), 0);
}

View KeyValueCache::layer(std::int64_t i) const {
  const std::int64_t count = size_.slots * size_.shape.block_count();
  return memory_.slice(i * count, count);
}

std::span<const std::int32_t> KeyValueCache::blocks(std::int64_t slot) const {
  return std::span(table_).subspan(static_cast<std::size_t>(slot), 1);
}

void KeyValueCache::grow(std::int64_t slot, std::int64_t tokens) {
  std::int64_t& length = lengths_.at(static_cast<std::size_t>(slot));
  ZERO_CHECK(tokens >= 0 && length + tokens <= size_.tokens,
             "the cache holds {} tokens of slot {}, and {} more; expected at most {}", length, slot,
             tokens, size_.tokens);
  length += tokens;
}

void KeyValueCache::trim(std::int64_t slot, std::int64_t length) {
  std::int64_t& now = lengths_.at(static_cast<std::size_t>(slot));
  ZERO_CHECK(length >= 0 && length <= now,
             "slot {} of the cache is trimmed to {} tokens; expected 0 to {}, as many as it holds",
             slot, length, now);
  now = length;
}

}  // namespace zero
