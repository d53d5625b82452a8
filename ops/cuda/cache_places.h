// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ops/inference_ops.h"

namespace zero::cuda {

/// Where a layer's part of the cache holds keys and values: elements of its type; `chunk` elements
/// are 16 bytes. A group's keys lie in chunks of each position, (chunks, kCacheGroup, chunk), so
/// that the threads of a warp, a position each, load 16 bytes side by side; the last chunk is
/// narrower if the head is no multiple. Values lie as (kCacheGroup, head_width). For host and
/// device.
template <int chunk>
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
  /// The group of a position, for its block.
  constexpr std::int64_t group(std::int32_t block, int kv_head, int position) const {
    const int group = position % tokens_ / kGroup;
    return block * block_ + kv_head * head_ + std::int64_t{group} * (2 * kGroup * width_);
  }
  /// Within a group: element `i` of the key of a position.
  constexpr int key(int position, int i) const {
    const int first = i / chunk * chunk;
    const int length = width_ - first < chunk ? width_ - first : chunk;
    return first * kGroup + position % kGroup * length + i - first;
  }
  /// The same, if the element's chunk is not the last of a head that is no multiple.
  constexpr int whole_key(int position, int i) const {
    return i / chunk * (chunk * kGroup) + position % kGroup * chunk + i % chunk;
  }
  constexpr int value(int position, int i) const {
    return kGroup * width_ + position % kGroup * width_ + i;
  }

 private:
  static constexpr int kGroup = static_cast<int>(kCacheGroup);

  std::int64_t block_;
  std::int64_t head_;
  int width_;
  int tokens_;
};

}  // namespace zero::cuda
