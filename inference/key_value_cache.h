// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "inference/inference_ops.h"

namespace zero {

/// Keys and values of all layers for a fixed number of sequences. Each has a slot: memory for its
/// longest length. Memory is allocated once. Positions below length() are written.
class KeyValueCache {
 public:
  struct Size {
    std::int64_t layers = 0;
    std::int64_t slots = 1;
    std::int64_t tokens = 0;  ///< of the longest sequence
    CacheShape shape;         ///< block_tokens: a slot's, rounded up
  };
  /// Allocates. Throws zero::Error if the device lacks memory.
  KeyValueCache(Device& device, const Size& size);

  const CacheShape& shape() const { return size_.shape; }
  std::int64_t slots() const { return size_.slots; }
  /// The longest sequence.
  std::int64_t tokens() const { return size_.tokens; }
  /// All blocks of a layer.
  View layer(std::int64_t i) const;
  /// A slot's block table.
  std::span<const std::int32_t> blocks(std::int64_t slot) const;

  std::int64_t length(std::int64_t slot) const { return lengths_[static_cast<std::size_t>(slot)]; }
  /// Tokens were written behind the last. Throws zero::Error if the slot is too short.
  void grow(std::int64_t slot, std::int64_t tokens);
  /// Forgets the tokens from `length` on; 0 empties the slot.
  void trim(std::int64_t slot, std::int64_t length);

 private:
  Size size_;
  Buffer memory_;
  std::vector<std::int32_t> table_;
  std::vector<std::int64_t> lengths_;
};

}  // namespace zero
