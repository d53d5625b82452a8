// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "inference/inference_ops.h"

namespace zero::cpu {

/// Keys and values of one head of one sequence, stored as T: elements, or the codes of
/// CacheFormat::int8.
template <typename T>
class HeadOfCache {
 public:
  static constexpr bool kHasScales = std::is_same_v<T, std::int8_t>;

  HeadOfCache(const CachedAttention& o, const SequenceRows& sequence, std::int64_t kv_head)
      : cache_(o.cache),
        blocks_(sequence.blocks),
        head_(static_cast<std::byte*>(o.layer.data()) + kv_head * o.cache.head_bytes()) {}

  /// Keys (head_width, kCacheGroup) of the group that holds `position`.
  T* keys(std::int64_t position) const {
    return reinterpret_cast<T*>(group(position) + cache_.scale_bytes());
  }
  /// Values (kCacheGroup, head_width).
  T* values(std::int64_t position) const {
    return keys(position) + kCacheGroup * cache_.head_width;
  }
  /// Of the group's kCacheGroup positions, of codes alone.
  float* key_scales(std::int64_t position) const {
    return reinterpret_cast<float*>(group(position));
  }
  float* value_scales(std::int64_t position) const { return key_scales(position) + kCacheGroup; }

 private:
  std::byte* group(std::int64_t position) const {
    const std::int64_t block = blocks_[static_cast<std::size_t>(position / cache_.block_tokens)];
    const std::int64_t group = position % cache_.block_tokens / kCacheGroup;
    return head_ + block * cache_.block_bytes() + group * cache_.group_bytes();
  }

  const CacheShape& cache_;
  std::span<const std::int32_t> blocks_;
  std::byte* head_;
};

/// Writes k and v of rows [begin, end) of one of the sequences to the cache, in its format.
void append_rows(const CachedAttention& operands, const SequenceRows& sequence, std::int64_t begin,
                 std::int64_t end);

}  // namespace zero::cpu
