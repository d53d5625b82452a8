// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/key_value_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/mixed_bits.h"
#include "inference/inference_options.h"

namespace zero {
namespace {

KeyValueCache::Size with_blocks(KeyValueCache::Size size) {
  const std::int64_t longest = div_ceil(size.tokens, size.shape.block_tokens);
  if (size.blocks == 0) size.blocks = checked_mul(size.slots, longest);
  ZERO_CHECK(size.blocks >= longest,
             "the cache has {} blocks of {} tokens; expected at least {}, for the longest sequence "
             "of {} tokens",
             size.blocks, size.shape.block_tokens, longest, size.tokens);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // BlockPool's numbers
  ZERO_CHECK(size.blocks <= kMost && size.host_blocks <= kMost - size.blocks,
             "the cache has {} blocks of {} tokens, and {} in host memory; expected at most {} of "
             "both: take fewer tokens, or larger blocks",
             size.blocks, size.shape.block_tokens, size.host_blocks, kMost);
  return size;
}

}  // namespace

std::size_t BlockPool::Hash::operator()(const Key& key) const {
  std::uint64_t hash = mixed_bits(key.before);
  for (const std::uint32_t token : key.tokens) hash = split_mix(hash, token);
  return static_cast<std::size_t>(hash);
}

BlockPool::BlockPool(const Size& size, Copy copy)
    : size_(size),
      copy_(std::move(copy)),
      blocks_(static_cast<std::size_t>(size.blocks + size.host_blocks)) {
  for (auto i = static_cast<std::int32_t>(blocks_.size()); i-- > 0;) memory_of(i).free.push_back(i);
  index_.reserve(blocks_.size());  // each entry has a block: its iterators stay valid
}

// Blocks in use come first: their sequences use the blocks before them, too.
BlockPool::Prefix BlockPool::cached_prefix(std::span<const std::uint32_t> tokens) const {
  const auto size = static_cast<std::size_t>(size_.block_tokens);
  Prefix found;
  Key key;
  for (; tokens.size() > size; tokens = tokens.subspan(size)) {
    key.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(size));
    const auto entry = index_.find(key);
    if (entry == index_.end()) break;
    const std::int32_t i = entry->second;
    if (block(i).users == 0) {
      if (found.unused_blocks + found.host_blocks == available()) break;
      ++(on_host(i) ? found.host_blocks : found.unused_blocks);
    }
    found.blocks.push_back(i);
    found.tokens += size_.block_tokens;
    key.before = block(i).content;
  }
  return found;
}

void BlockPool::acquire(std::span<std::int32_t> blocks) {
  for (const std::int32_t i : blocks) use(i);  // all, before one is evicted for another
  for (std::int32_t& i : blocks) {
    if (!on_host(i)) continue;
    const std::int32_t to = take();
    move(i, to);
    release(i);
    i = to;
    ++counts_.moved_back;
  }
}

std::int32_t BlockPool::take(Unused& memory) {
  if (memory.free.empty()) evict(memory.cached.front());
  const std::int32_t i = memory.free.back();
  memory.free.pop_back();
  block(i).users = 1;
  return i;
}

void BlockPool::use(std::int32_t i) {
  if (block(i).users++ == 0) memory_of(i).cached.erase(block(i).unused);
}

void BlockPool::release(std::int32_t i) {
  Block& of = block(i);
  if (--of.users > 0) return;
  Unused& memory = memory_of(i);
  if (of.content == kUnknown) {
    memory.free.push_back(i);
  } else {
    of.unused = memory.cached.insert(memory.cached.end(), i);
  }
}

// If a block is already cached for this content, the sequence writes its own values there, which
// have the same bits. One on the host is needed no more.
std::int32_t BlockPool::publish(std::span<const std::int32_t> table,
                                std::span<const std::uint32_t> tokens) {
  const std::int32_t last = table.back();
  const Content before = table.size() == 1 ? kEmpty : block(table[table.size() - 2]).content;
  if (before == kUnknown) return last;
  const auto [entry, is_new] =
      index_.try_emplace({before, std::vector<std::uint32_t>(tokens.begin(), tokens.end())}, last);
  if (is_new) {
    block(last).content = next_content_++;
    block(last).entry = entry;
    return last;
  }
  const std::int32_t cached = entry->second;
  use(cached);
  if (!on_host(cached)) {
    release(last);
    return cached;
  }
  reassign(cached, last);
  release(cached);
  return last;
}

void BlockPool::unpublish(std::int32_t i) {
  Block& of = block(i);
  if (of.content == kUnknown) return;
  index_.erase(of.entry);
  of.content = kUnknown;
  if (of.users == 0) {
    memory_of(i).cached.erase(of.unused);
    memory_of(i).free.push_back(i);
  }
}

void BlockPool::unpublish_all() {
  for (std::int32_t i = 0; i < std::ssize(blocks_); ++i) unpublish(i);
}

// A cached block without users becomes free: its content moves to the host, or is forgotten.
void BlockPool::evict(std::int32_t i) {
  if (on_host(i) || host_.available() == 0) {
    ++counts_.forgotten;
    return unpublish(i);
  }
  use(i);
  const std::int32_t to = take(host_);
  move(i, to);
  release(to);
  release(i);
  ++counts_.moved_out;
}

void BlockPool::move(std::int32_t from, std::int32_t to) {
  copy_(from, to);
  reassign(from, to);
}

// Publishes `to`, whose content was unknown, for the content of `from`.
void BlockPool::reassign(std::int32_t from, std::int32_t to) {
  block(to).content = std::exchange(block(from).content, kUnknown);
  block(to).entry = block(from).entry;
  block(to).entry->second = to;
}

BlockPool::Usage BlockPool::usage() const {
  Usage usage = counts_;
  usage.total = size_.blocks;
  usage.used = size_.blocks - available();
  usage.cached = std::ssize(device_.cached);
  usage.host_total = size_.host_blocks;
  usage.host_used = std::ssize(host_.cached);
  return usage;
}

KeyValueCache::KeyValueCache(Device& device, const Size& size)
    : device_(device),
      size_(with_blocks(size)),
      memory_(device.allocate(
          checked_mul(checked_mul(size_.layers, size_.blocks), size_.shape.block_bytes()),
          DType::u8, MemoryClass::activations, "key_value_cache")),
      host_memory_(device.allocate_host(
          checked_mul(checked_mul(size_.layers, size_.host_blocks), size_.shape.block_bytes()),
          DType::u8, MemoryClass::activations, "host_key_value_cache")),
      sequences_(static_cast<std::size_t>(size_.slots)),
      pool_({.block_tokens = size_.shape.block_tokens,
             .blocks = size_.blocks,
             .host_blocks = size_.host_blocks},
            [this](std::int32_t from, std::int32_t to) { copy(from, to); }) {}

View KeyValueCache::layer(std::int64_t i) const {
  const std::int64_t bytes = size_.blocks * size_.shape.block_bytes();
  return memory_.slice(i * bytes, bytes);
}

std::size_t KeyValueCache::checked(std::int64_t slot) const {
  ZERO_CHECK(is_open(slot), "the cache has no sequence in slot {}; expected one that open() gave",
             slot);
  return static_cast<std::size_t>(slot);
}

bool KeyValueCache::is_open(std::int64_t slot) const {
  return slot >= 0 && slot < size_.slots && sequences_[static_cast<std::size_t>(slot)].open;
}

std::int64_t KeyValueCache::free_slots() const {
  return std::ranges::count_if(sequences_, [](const Sequence& each) { return !each.open; });
}

std::int64_t KeyValueCache::length(std::int64_t slot) const {
  return std::ssize(sequence(slot).tokens);
}

std::span<const std::int32_t> KeyValueCache::blocks(std::int64_t slot) const {
  return sequence(slot).table;
}

std::int64_t KeyValueCache::open(std::span<const std::uint32_t> tokens) {
  const auto free = std::ranges::find(sequences_, false, &Sequence::open);
  ZERO_CHECK(free != sequences_.end(), "the cache has no free slot of {}; close a sequence first",
             size_.slots);
  free->open = true;
  BlockPool::Prefix prefix = pool_.cached_prefix(tokens);
  pool_.acquire(prefix.blocks);
  free->table = std::move(prefix.blocks);
  free->tokens.assign(tokens.begin(), tokens.begin() + prefix.tokens);
  counts_.reused += prefix.tokens;
  counts_.most_used = std::max(counts_.most_used, size_.blocks - pool_.available());
  return free - sequences_.begin();
}

void KeyValueCache::close(std::int64_t slot) {
  trim(slot, 0);
  sequence(slot).open = false;
}

std::int64_t KeyValueCache::blocks_needed(std::int64_t slot, std::int64_t tokens) const {
  const Sequence& of = sequence(slot);
  const std::int64_t length = std::ssize(of.tokens);
  const std::int64_t more =
      div_ceil(length + tokens, size_.shape.block_tokens) - std::ssize(of.table);
  const bool copies =
      tokens > 0 && length % size_.shape.block_tokens != 0 && pool_.is_shared(of.table.back());
  return more + (copies ? 1 : 0);
}

void KeyValueCache::append(std::int64_t slot, std::span<const std::uint32_t> tokens) {
  const std::int64_t length = this->length(slot);
  ZERO_CHECK(length + std::ssize(tokens) <= size_.tokens,
             "the cache holds {} tokens of slot {}, and {} more; expected at most {}", length, slot,
             tokens.size(), size_.tokens);
  const std::int64_t needed = blocks_needed(slot, std::ssize(tokens));
  ZERO_CHECK(needed <= available_blocks(),
             "the cache has {} blocks left of {}, and {} tokens of slot {} take {}; expected as "
             "many: end or preempt other sequences",
             available_blocks(), size_.blocks, tokens.size(), slot, needed);
  Sequence& of = sequence(slot);
  if (!tokens.empty()) make_writable(of);
  const auto size = static_cast<std::size_t>(size_.shape.block_tokens);
  for (const std::uint32_t token : tokens) {
    if (of.tokens.size() == of.table.size() * size) of.table.push_back(pool_.take());
    of.tokens.push_back(token);
    if (of.tokens.size() < of.table.size() * size) continue;
    of.table.back() = pool_.publish(of.table, std::span(of.tokens).last(size));
  }
  counts_.appended += std::ssize(tokens);
  counts_.held += std::ssize(of.tokens);
  counts_.places += std::ssize(of.table) * size_.shape.block_tokens;
  counts_.most_used = std::max(counts_.most_used, size_.blocks - pool_.available());
}

void KeyValueCache::trim(std::int64_t slot, std::int64_t length) {
  Sequence& of = sequence(slot);
  ZERO_CHECK(length >= 0 && length <= std::ssize(of.tokens),
             "slot {} of the cache is trimmed to {} tokens; expected 0 to {}, as many as it holds",
             slot, length, of.tokens.size());
  of.tokens.resize(static_cast<std::size_t>(length));
  for (; std::ssize(of.table) > div_ceil(length, size_.shape.block_tokens); of.table.pop_back()) {
    pool_.release(of.table.back());
  }
}

KeyValueCache::Usage KeyValueCache::usage() const {
  Usage usage = counts_;
  static_cast<BlockPool::Usage&>(usage) = pool_.usage();
  for (const Sequence& each : sequences_) usage.tokens += std::ssize(each.tokens);
  return usage;
}

View KeyValueCache::part(std::int32_t block, std::int64_t layer) const {
  const std::int64_t bytes = size_.shape.block_bytes();
  if (!pool_.on_host(block)) return this->layer(layer).slice(block * bytes, bytes);
  return host_memory_.slice(((block - size_.blocks) * size_.layers + layer) * bytes, bytes);
}

void KeyValueCache::copy(std::int32_t from, std::int32_t to) {
  for (std::int64_t layer = 0; layer < size_.layers; ++layer) {
    device_.kernels().convert(device_.compute(), part(from, layer), part(to, layer));
  }
}

// The last block, if tokens are to be written behind its own.
void KeyValueCache::make_writable(Sequence& sequence) {
  if (std::ssize(sequence.tokens) % size_.shape.block_tokens == 0) return;
  std::int32_t& last = sequence.table.back();
  if (!pool_.is_shared(last)) return pool_.unpublish(last);
  const std::int32_t own = pool_.take();
  copy(last, own);
  pool_.release(last);
  last = own;
}

KeyValueCache::Size cache_size(const InferenceOptions& options, const DecoderShape& decoder) {
  const std::int64_t block = options.block_tokens;
  return {.layers = decoder.layers,
          .slots = options.requests,
          .tokens = options.request_tokens,
          .blocks = div_ceil(options.cache_tokens, block),
          .host_blocks = div_ceil(options.host_tokens, block),
          .shape = {.kv_heads = decoder.kv_heads,
                    .head_width = decoder.head_width,
                    .block_tokens = block,
                    .dtype = options.dtype,
                    .format = options.cache}};
}

}  // namespace zero
