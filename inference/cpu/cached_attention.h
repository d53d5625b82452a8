// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "inference/inference_ops.h"

namespace zero::cpu {

/// Keys and values of one head of one sequence.
template <typename T>
class HeadOfCache {
 public:
  HeadOfCache(const CachedAttention& o, const SequenceRows& sequence, std::int64_t kv_head)
      : cache_(o.cache),
        blocks_(sequence.blocks),
        head_(static_cast<std::byte*>(o.layer.data()) + kv_head * o.cache.head_bytes()) {}

  /// Keys (head_width, kCacheGroup) of the group that holds `position`.
  T* keys(std::int64_t position) const {
    const std::int64_t block = blocks_[static_cast<std::size_t>(position / cache_.block_tokens)];
    const std::int64_t group = position % cache_.block_tokens / kCacheGroup;
    return reinterpret_cast<T*>(head_ + block * cache_.block_bytes() +
                                group * cache_.group_bytes());
  }
  /// Values (kCacheGroup, head_width).
  T* values(std::int64_t position) const {
    return keys(position) + kCacheGroup * cache_.head_width;
  }

 private:
  const CacheShape& cache_;
  std::span<const std::int32_t> blocks_;
  std::byte* head_;
};

/// Copies k and v of rows [begin, end) of one of the sequences to the cache.
void append_rows(const CachedAttention& operands, const SequenceRows& sequence, std::int64_t begin,
                 std::int64_t end);

/// Rows [begin, end) of one sequence, for the query heads that read one key head.
struct AttentionRows {
  const SequenceRows* sequence = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// Query rows that share loads of keys and values.
inline constexpr std::int64_t kTileRows = 4;
/// Bytes of scratch of one thread.
std::int64_t attention_scratch_bytes(const CacheShape& shape);
/// Softmax over stretches of kStretch positions, at multiples of it, each folded into running
/// largest score, sum and output (Milakov and Gimelshein 2018): the same for a row whatever rows
/// are computed beside it.
inline constexpr std::int64_t kStretch = 64;
void attend_rows(const CachedAttention& operands, const AttentionRows& rows, void* scratch);

}  // namespace zero::cpu
