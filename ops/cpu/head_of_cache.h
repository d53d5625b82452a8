// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ops/inference_ops.h"

namespace zero::cpu {

/// Keys and values of one head of one sequence, stored as T: elements, or the codes of
/// CacheFormat::int8.
template <typename T>
class HeadOfCache {
 public:
  static constexpr bool kHasScales = std::is_same_v<T, std::int8_t>;

  HeadOfCache(const CachedAttention& o, const SequenceRows& sequence, std::int64_t kv_head)
      : blocks_(sequence.blocks),
        head_(static_cast<std::byte*>(o.layer.data()) + kv_head * o.cache.head_bytes()),
        block_groups_(static_cast<std::uint32_t>(o.cache.block_tokens / kCacheGroup)),
        block_bytes_(o.cache.block_bytes()),
        group_bytes_(o.cache.group_bytes()),
        scale_bytes_(o.cache.scale_bytes()),
        key_count_(kCacheGroup * o.cache.head_width) {}

  /// Keys (head_width, kCacheGroup) of the group that holds `position`.
  T* keys(std::int64_t position) const {
    return reinterpret_cast<T*>(group(position) + scale_bytes_);
  }
  /// Values (kCacheGroup, head_width).
  T* values(std::int64_t position) const { return keys(position) + key_count_; }
  /// Of the group's kCacheGroup positions, of codes alone.
  float* key_scales(std::int64_t position) const {
    return reinterpret_cast<float*>(group(position));
  }
  float* value_scales(std::int64_t position) const { return key_scales(position) + kCacheGroup; }

 private:
  std::byte* group(std::int64_t position) const {
    const auto group = static_cast<std::uint32_t>(position / kCacheGroup);
    const std::int64_t block = blocks_[group / block_groups_];
    return head_ + block * block_bytes_ + group % block_groups_ * group_bytes_;
  }

  std::span<const std::int32_t> blocks_;
  std::byte* head_;
  std::uint32_t block_groups_;  // groups of a block
  std::int64_t block_bytes_;
  std::int64_t group_bytes_;
  std::int64_t scale_bytes_;
  std::int64_t key_count_;  // elements of the keys of a group
};

/// Writes k and v of rows [begin, end) of one of the sequences to the cache, in its format.
void append_rows(const CachedAttention& operands, const SequenceRows& sequence, std::int64_t begin,
                 std::int64_t end);

}  // namespace zero::cpu
