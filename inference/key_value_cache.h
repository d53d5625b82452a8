// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/device.h"
#include "ops/inference_ops.h"

namespace zero {

struct DecoderShape;
struct InferenceOptions;

/// Book-keeping of a cache's blocks: which are used, and which tokens they hold. Blocks of the
/// device are numbered from 0, those of the host follow. A full block that is published can be
/// found by its tokens and all before them, so sequences with equal beginnings share blocks. A
/// published block without users stays cached until its memory is needed. The least recently used
/// one is evicted first: its content moves to the host, where the least recently used content is
/// forgotten. Owns no memory. For one thread.
class BlockPool {
 public:
  struct Size {
    std::int64_t block_tokens = 1;
    std::int64_t blocks = 0;
    std::int64_t host_blocks = 0;
  };
  /// Copies a block's memory; called in the order in which the copies must run.
  using Copy = std::function<void(std::int32_t from, std::int32_t to)>;
  BlockPool(const Size& size, Copy copy);

  bool on_host(std::int32_t i) const { return i >= size_.blocks; }
  /// Whether the block has more than one user.
  bool is_shared(std::int32_t i) const { return block(i).users > 1; }
  /// Blocks of the device that take() can give: free ones, and cached ones without users.
  std::int64_t available() const { return device_.available(); }

  struct Prefix {
    std::vector<std::int32_t> blocks{};
    std::int64_t tokens = 0;
    // acquire() takes an available block for each of these.
    std::int64_t unused_blocks = 0;  ///< of the device, without users
    std::int64_t host_blocks = 0;
  };
  /// The cached blocks of the longest beginning that excludes the last token, as far as there are
  /// available blocks for those without users.
  Prefix cached_prefix(std::span<const std::uint32_t> tokens) const;
  /// Adds a user to each block of a cached_prefix(). Those on the host move to the device: `blocks`
  /// names the ones that they moved to.
  void acquire(std::span<std::int32_t> blocks);
  /// A block of the device with one user and unknown content. One must be available.
  std::int32_t take() { return take(device_); }
  /// Takes a user away. Release the end of a sequence first: its beginning is then evicted later.
  void release(std::int32_t i);
  /// The last block of a sequence's `table` is full, of `tokens`. Returns the block that replaces
  /// it in the table: itself, or the one of the device that is already cached for this content.
  /// Blocks behind one of unknown content are not published.
  std::int32_t publish(std::span<const std::int32_t> table, std::span<const std::uint32_t> tokens);
  /// The block's content is unknown from now on.
  void unpublish(std::int32_t i);
  void unpublish_all();

  struct Usage {
    std::int64_t total = 0;
    std::int64_t used = 0;    ///< with users
    std::int64_t cached = 0;  ///< without users, but published
    std::int64_t host_total = 0;
    std::int64_t host_used = 0;
    // Blocks since the start.
    std::int64_t moved_out = 0;   ///< to the host
    std::int64_t moved_back = 0;  ///< from the host
    std::int64_t forgotten = 0;   ///< published ones whose memory was needed
  };
  Usage usage() const;

 private:
  /// Identifies the tokens up to a block's end. Never given twice.
  using Content = std::uint64_t;
  static constexpr Content kUnknown = 0;
  static constexpr Content kEmpty = 1;  // no tokens

  /// A block's tokens and what comes before them.
  struct Key {
    Content before = kEmpty;
    std::vector<std::uint32_t> tokens;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  using Index = std::unordered_map<Key, std::int32_t, Hash>;

  struct Block {
    std::int64_t users = 0;
    Content content = kUnknown;
    Index::iterator entry{};                     // if published
    std::list<std::int32_t>::iterator unused{};  // if published and without users
  };
  /// The blocks of one memory that have no users.
  struct Unused {
    std::vector<std::int32_t> free{};  // of unknown content
    std::list<std::int32_t> cached{};  // published; least recently used first
    std::int64_t available() const { return std::ssize(free) + std::ssize(cached); }
  };

  Block& block(std::int32_t i) { return blocks_[static_cast<std::size_t>(i)]; }
  const Block& block(std::int32_t i) const { return blocks_[static_cast<std::size_t>(i)]; }
  Unused& memory_of(std::int32_t i) { return on_host(i) ? host_ : device_; }
  std::int32_t take(Unused& memory);
  void use(std::int32_t i);
  void evict(std::int32_t i);
  void move(std::int32_t from, std::int32_t to);
  void reassign(std::int32_t from, std::int32_t to);

  const Size size_;
  const Copy copy_;
  std::vector<Block> blocks_;
  Unused device_, host_;
  Index index_;
  Content next_content_ = kEmpty + 1;
  Usage counts_;
};

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

/// The cache of a rank that computes `decoder`.
KeyValueCache::Size cache_size(const InferenceOptions& options, const DecoderShape& decoder);

}  // namespace zero
