// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/device.h"
#include "inference/inference_ops.h"

namespace zero {

/// Keys and values of all layers, in blocks of as many tokens each. A sequence has a slot, and in
/// it a block table: the blocks of its tokens, in order. Whole blocks are known by all tokens up to
/// their end, so sequences with equal beginnings share blocks; a shared block is copied before a
/// sequence writes to it. Blocks that no sequence uses stay known until others need their memory,
/// longest unused first. One block as long as the longest sequence makes a contiguous cache.
/// Memory is allocated once; work is submitted to the compute stream. For one host thread.
class KeyValueCache {
 public:
  struct Size {
    std::int64_t layers = 0;
    std::int64_t slots = 1;   ///< sequences at a time
    std::int64_t tokens = 0;  ///< of the longest sequence
    std::int64_t blocks = 0;  ///< of all sequences; 0: enough for all slots at their longest
    CacheShape shape;
  };
  /// Allocates. Throws zero::Error if the device lacks memory, or if the blocks do not hold the
  /// longest sequence. `device` must outlive the cache.
  KeyValueCache(Device& device, const Size& size);

  const CacheShape& shape() const { return size_.shape; }
  std::int64_t slots() const { return size_.slots; }
  /// The longest sequence.
  std::int64_t tokens() const { return size_.tokens; }
  std::int64_t total_blocks() const { return size_.blocks; }
  /// All blocks of a layer, u8.
  View layer(std::int64_t i) const;

  /// Takes a free slot for a sequence that is to have these tokens, and gives it the known blocks
  /// of the longest beginning, but not of the last token: length() tells how many tokens those are.
  /// Throws zero::Error if no slot is free.
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
  /// The pass failed that was to write what append() took: nothing is known any more.
  void forget();

  /// Blocks that append() of so many tokens takes from those available.
  std::int64_t blocks_needed(std::int64_t slot, std::int64_t tokens) const;
  /// Tokens of whole blocks that open() would find, and blocks among them that no sequence uses.
  struct Known {
    std::int64_t tokens = 0;
    std::int64_t unused_blocks = 0;
  };
  Known known(std::span<const std::uint32_t> tokens) const;
  /// Blocks that can be taken: those never used, and known ones that no sequence uses.
  std::int64_t available_blocks() const;

  /// What the blocks are used for.
  struct Usage {
    std::int64_t total = 0;
    std::int64_t used = 0;       ///< by sequences
    std::int64_t known = 0;      ///< by no sequence, but their tokens are known
    std::int64_t tokens = 0;     ///< of all open sequences, shared ones once for each
    std::int64_t reused = 0;     ///< tokens that open() found, since the start
    std::int64_t evictions = 0;  ///< known blocks given away, since the start
  };
  Usage usage() const;

 private:
  /// Identifies the tokens up to a block's end. Never given twice.
  using Content = std::uint64_t;
  static constexpr Content kUnknown = 0;
  static constexpr Content kEmpty = 1;  // no tokens

  /// A block's tokens behind what comes before it.
  struct Beginning {
    Content before = kEmpty;
    std::vector<std::uint32_t> tokens;
    bool operator==(const Beginning&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Beginning& beginning) const;
  };
  using Index = std::unordered_map<Beginning, std::int32_t, Hash>;

  struct Block {
    std::int64_t users = 0;  // sequences
    Content content = kUnknown;
    Index::const_iterator entry{};               // if the content is known
    std::list<std::int32_t>::iterator unused{};  // if known and without users
  };
  struct Sequence {
    bool open = false;
    std::vector<std::uint32_t> tokens{};
    std::vector<std::int32_t> table{};
  };

  Block& block(std::int32_t i) { return blocks_[static_cast<std::size_t>(i)]; }
  const Block& block(std::int32_t i) const { return blocks_[static_cast<std::size_t>(i)]; }
  const Sequence& sequence(std::int64_t slot) const { return sequences_[checked(slot)]; }
  Sequence& sequence(std::int64_t slot) { return sequences_[checked(slot)]; }
  std::size_t checked(std::int64_t slot) const;
  std::vector<std::int32_t> find(std::span<const std::uint32_t> tokens) const;
  Content content_before(const Sequence& sequence, std::size_t block) const;
  std::int32_t take();
  void use(std::int32_t i);
  void leave(std::int32_t i);
  void unlearn(std::int32_t i);
  void make_writable(Sequence& sequence);
  void learn(Sequence& sequence);

  Device& device_;
  Size size_;
  Buffer memory_;
  std::vector<Sequence> sequences_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> free_;  // without users, unknown
  std::list<std::int32_t> unused_;  // without users, known; longest unused first
  Index index_;
  Content next_content_ = kEmpty + 1;
  std::int64_t reused_ = 0;
  std::int64_t evictions_ = 0;
};

}  // namespace zero
