// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "inference/block_pool.h"
#include "ops/inference_ops.h"

namespace zero {

/// Keys and values of all layers, in blocks of as many tokens each. A sequence has a slot, and in
/// it a block table: the blocks of its tokens, in order. Sequences with equal beginnings share
/// blocks, and blocks that no sequence uses stay cached, as BlockPool describes; a shared block is
/// copied before a sequence writes to it. Memory is allocated once; work, copies too, is submitted
/// to the compute stream. For one host thread.
class KeyValueCache {
 public:
  struct Size {
    std::int64_t layers = 0;
    std::int64_t slots = 1;        ///< sequences at a time
    std::int64_t tokens = 0;       ///< of the longest sequence
    std::int64_t blocks = 0;       ///< of all sequences; 0: enough for all slots at their longest
    std::int64_t host_blocks = 0;  ///< in host memory, beside those
    CacheShape shape;
  };
  /// Allocates. Throws zero::Error if device or host lack memory, or if the blocks do not hold the
  /// longest sequence. `device` must outlive the cache.
  KeyValueCache(Device& device, const Size& size);
  KeyValueCache(const KeyValueCache&) = delete;
  KeyValueCache& operator=(const KeyValueCache&) = delete;

  const CacheShape& shape() const { return size_.shape; }
  std::int64_t slots() const { return size_.slots; }
  /// The longest sequence.
  std::int64_t tokens() const { return size_.tokens; }
  std::int64_t total_blocks() const { return size_.blocks; }
  /// All blocks of a layer, u8.
  View layer(std::int64_t i) const;

  /// Takes a free slot for a sequence that is to have these tokens, and gives it the
  /// cached_prefix() of them: length() tells how many tokens those are. Blocks on the host move
  /// back. Throws zero::Error if no slot is free.
  std::int64_t open(std::span<const std::uint32_t> tokens = {});
  /// Gives back slot and blocks.
  void close(std::int64_t slot);
  bool is_open(std::int64_t slot) const;
  std::int64_t free_slots() const;

  std::int64_t length(std::int64_t slot) const;
  /// Block table, valid until the slot changes.
  std::span<const std::int32_t> blocks(std::int64_t slot) const;
  /// Takes the blocks of tokens that the next pass writes behind the last. Throws zero::Error,
  /// before anything is changed, if the sequence would be too long or blocks are lacking.
  void append(std::int64_t slot, std::span<const std::uint32_t> tokens);
  /// Forgets the tokens from `length` on.
  void trim(std::int64_t slot, std::int64_t length);
  /// The pass that was to write the appended tokens failed: no block is cached for any tokens.
  void forget() { pool_.unpublish_all(); }

  /// Blocks that append() of so many tokens takes from those available.
  std::int64_t blocks_needed(std::int64_t slot, std::int64_t tokens) const;
  /// What open() would find.
  BlockPool::Prefix cached_prefix(std::span<const std::uint32_t> tokens) const {
    return pool_.cached_prefix(tokens);
  }
  std::int64_t available_blocks() const { return pool_.available(); }

  struct Usage : BlockPool::Usage {
    std::int64_t tokens = 0;     ///< of all open sequences, shared ones once for each
    std::int64_t appended = 0;   ///< tokens, since the start
    std::int64_t reused = 0;     ///< tokens that open() found, since the start
    std::int64_t most_used = 0;  ///< blocks with users at once, since the start
    /// Tokens of the sequence, and places of its blocks, after each append(): their quotient tells
    /// how full the blocks of sequences were on average.
    std::int64_t held = 0;
    std::int64_t places = 0;
  };
  Usage usage() const;

 private:
  struct Sequence {
    bool open = false;
    std::vector<std::uint32_t> tokens{};
    std::vector<std::int32_t> table{};
  };

  const Sequence& sequence(std::int64_t slot) const { return sequences_[checked(slot)]; }
  Sequence& sequence(std::int64_t slot) { return sequences_[checked(slot)]; }
  std::size_t checked(std::int64_t slot) const;
  View part(std::int32_t block, std::int64_t layer) const;
  void copy(std::int32_t from, std::int32_t to);
  void make_writable(Sequence& sequence);

  Device& device_;
  Size size_;
  Buffer memory_;       // (layers, blocks): block_bytes each
  Buffer host_memory_;  // (host_blocks, layers)
  std::vector<Sequence> sequences_;
  BlockPool pool_;
  Usage counts_;  // those since the start
};

}  // namespace zero
