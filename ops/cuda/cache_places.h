// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/inference_ops.h"

namespace zero::cuda {

/// Where a layer's part of the cache holds keys and values: elements of its type; `pack` elements
/// are 16 bytes. A chunk's keys lie in packs of each position, (packs, kCacheChunk, pack), so
/// that the threads of a warp, a position each, load 16 bytes side by side; the last pack is
/// narrower if the head is no multiple. Values lie as (kCacheChunk, head_width). For host and
/// device.
template <int pack>
class CachePlaces {
 public:
  explicit CachePlaces(const CacheShape& shape)
      : block_(shape.block_bytes() / size_of(shape.dtype)),
        head_(shape.head_bytes() / size_of(shape.dtype)),
        width_(static_cast<int>(shape.head_width)),
        tokens_(static_cast<int>(shape.block_tokens)) {}

  constexpr int width() const { return width_; }
  /// The entry of the block table, for a position in its sequence.
  constexpr int entry(int position) const { return position / tokens_; }
  /// The chunk of a position, for its block.
  constexpr std::int64_t chunk(std::int32_t block, int kv_head, int position) const {
    const int chunk = position % tokens_ / kChunk;
    return block * block_ + kv_head * head_ + std::int64_t{chunk} * (2 * kChunk * width_);
  }
  /// Within a chunk: element `i` of the key of a position.
  constexpr int key(int position, int i) const {
    const int first = i / pack * pack;
    const int length = width_ - first < pack ? width_ - first : pack;
    return first * kChunk + position % kChunk * length + i - first;
  }
  /// The same, if the element's pack is not the last of a head that is no multiple.
  constexpr int whole_key(int position, int i) const {
    return i / pack * (pack * kChunk) + position % kChunk * pack + i % pack;
  }
  constexpr int value(int position, int i) const {
    return kChunk * width_ + position % kChunk * width_ + i;
  }

 private:
  static constexpr int kChunk = static_cast<int>(kCacheChunk);

  std::int64_t block_;
  std::int64_t head_;
  int width_;
  int tokens_;
};

}  // namespace zero::cuda
