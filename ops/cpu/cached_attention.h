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
        block_chunks_(static_cast<std::uint32_t>(o.cache.block_tokens / kCacheChunk)),
        block_bytes_(o.cache.block_bytes()),
        chunk_bytes_(o.cache.chunk_bytes()),
        scale_bytes_(o.cache.scale_bytes()),
        key_count_(kCacheChunk * o.cache.head_width) {}

  /// Keys (head_width, kCacheChunk) of the chunk that holds `position`.
  T* keys(std::int64_t position) const {
    return reinterpret_cast<T*>(chunk(position) + scale_bytes_);
  }
  /// Values (kCacheChunk, head_width).
  T* values(std::int64_t position) const { return keys(position) + key_count_; }
  /// Of the chunk's kCacheChunk positions, of codes alone.
  float* key_scales(std::int64_t position) const {
    return reinterpret_cast<float*>(chunk(position));
  }
  float* value_scales(std::int64_t position) const { return key_scales(position) + kCacheChunk; }

 private:
  std::byte* chunk(std::int64_t position) const {
    const auto chunk = static_cast<std::uint32_t>(position / kCacheChunk);
    const std::int64_t block = blocks_[chunk / block_chunks_];
    return head_ + block * block_bytes_ + chunk % block_chunks_ * chunk_bytes_;
  }

  std::span<const std::int32_t> blocks_;
  std::byte* head_;
  std::uint32_t block_chunks_;  // chunks of a block
  std::int64_t block_bytes_;
  std::int64_t chunk_bytes_;
  std::int64_t scale_bytes_;
  std::int64_t key_count_;  // elements of the keys of a chunk
};

/// Writes k and v of rows [begin, end) of one of the sequences to the cache, in its format.
void append_rows(const CachedAttention& operands, const SequenceRows& sequence, std::int64_t begin,
                 std::int64_t end);

/// Rows [begin, end) of one sequence, for the query heads that read one key head.
struct AttentionRows {
  const SequenceRows* sequence = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// Query rows that share loads of keys and values, at most.
inline constexpr std::int64_t kTileRows = 8;
/// Bytes of scratch of one thread.
std::int64_t attention_scratch_bytes(const CacheShape& shape);
/// Softmax over key blocks of kKeyBlock positions, at multiples of it, each folded into running
/// largest score, sum and output (Milakov and Gimelshein 2018): the same for a row whatever rows
/// are computed beside it.
inline constexpr std::int64_t kKeyBlock = 64;
void attend_rows(const CachedAttention& operands, const AttentionRows& rows, void* scratch);

}  // namespace zero::cpu
