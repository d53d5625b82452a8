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
#include "ops/cache_shape.h"

namespace zero {

/// Keys and values of all layers, in blocks of as many tokens each. A sequence has a slot, and in
/// it a block table: the blocks of its tokens, in order. Whole blocks are known by all tokens up to
/// their end, so sequences with equal beginnings share blocks; a shared block is copied before a
/// sequence writes to it. Blocks that no sequence uses stay known until others need their memory,
/// longest unused first: their content then moves to blocks in host memory, of which the longest
/// unused is forgotten, and moves back when a sequence begins so. One block as long as the longest
/// sequence makes a contiguous cache. Memory is allocated once; work, copies too, is submitted to
/// the compute stream. For one host thread.
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

  const CacheShape& shape() const { return size_.shape; }
  std::int64_t slots() const { return size_.slots; }
  /// The longest sequence.
  std::int64_t tokens() const { return size_.tokens; }
  std::int64_t total_blocks() const { return size_.blocks; }
  /// All blocks of a layer, u8.
  View layer(std::int64_t i) const;

  /// Takes a free slot for a sequence that is to have these tokens, and gives it the known blocks
  /// of the longest beginning, but not of the last token: length() tells how many tokens those are.
  /// What is on the host moves back, as far as there are blocks available. Throws zero::Error if no
  /// slot is free.
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
  /// What open() would find. It takes a block of those available for each unused or host block.
  struct Known {
    std::int64_t tokens = 0;         ///< of whole blocks
    std::int64_t unused_blocks = 0;  ///< of the device, without a sequence
    std::int64_t host_blocks = 0;
  };
  Known known(std::span<const std::uint32_t> tokens) const;
  /// Blocks that can be taken: those never used, and known ones that no sequence uses.
  std::int64_t available_blocks() const;

  /// What the blocks are used for.
  struct Usage {
    std::int64_t total = 0;
    std::int64_t used = 0;    ///< by sequences
    std::int64_t known = 0;   ///< by no sequence, but their tokens are known
    std::int64_t tokens = 0;  ///< of all open sequences, shared ones once for each
    std::int64_t host_total = 0;
    std::int64_t host_used = 0;  ///< by what has moved there
    // Since the start.
    std::int64_t appended = 0;    ///< tokens
    std::int64_t reused = 0;      ///< tokens that open() found
    std::int64_t moved_out = 0;   ///< blocks, to the host
    std::int64_t moved_back = 0;  ///< blocks, from the host
    std::int64_t forgotten = 0;   ///< known blocks whose memory was needed
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
    Index::iterator entry{};                     // if the content is known
    std::list<std::int32_t>::iterator unused{};  // if known and without users
  };
  /// The blocks of one memory that no sequence uses.
  struct Pool {
    std::vector<std::int32_t> free{};  // unknown
    std::list<std::int32_t> unused{};  // known; longest unused first
    std::int64_t available() const { return std::ssize(free) + std::ssize(unused); }
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
  bool on_host(std::int32_t i) const { return i >= size_.blocks; }
  Pool& pool_of(std::int32_t i) { return on_host(i) ? host_pool_ : device_pool_; }
  View part(std::int32_t i, std::int64_t layer) const;
  void copy(std::int32_t from, std::int32_t to);
  void rename(std::int32_t from, std::int32_t to);
  std::int32_t take(Pool& pool);
  void vacate(std::int32_t i);
  std::int32_t move_back(std::int32_t i);
  void use(std::int32_t i);
  void leave(std::int32_t i);
  void unlearn(std::int32_t i);
  void make_writable(Sequence& sequence);
  void learn(Sequence& sequence);

  Device& device_;
  Size size_;
  Buffer memory_;       // (layers, blocks): block_bytes each
  Buffer host_memory_;  // (host_blocks, layers)
  std::vector<Sequence> sequences_;
  std::vector<Block> blocks_;  // of the device, then of the host
  Pool device_pool_, host_pool_;
  Index index_;
  Content next_content_ = kEmpty + 1;
  Usage counts_;  // what is counted since the start
};

}  // namespace zero
