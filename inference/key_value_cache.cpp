// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/key_value_cache.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/mixed_bits.h"

namespace zero {
namespace {

KeyValueCache::Size with_blocks(KeyValueCache::Size size) {
  const std::int64_t longest = div_ceil(size.tokens, size.shape.block_tokens);
  if (size.blocks == 0) size.blocks = checked_mul(size.slots, longest);
  ZERO_CHECK(size.blocks >= longest,
             "the cache has {} blocks of {} tokens; expected at least {}, for the longest sequence "
             "of {} tokens",
             size.blocks, size.shape.block_tokens, longest, size.tokens);
  return size;
}

}  // namespace

std::size_t KeyValueCache::Hash::operator()(const Beginning& beginning) const {
  std::uint64_t hash = mixed_bits(beginning.before);
  for (const std::uint32_t token : beginning.tokens) hash = split_mix(hash, token);
  return static_cast<std::size_t>(hash);
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
      blocks_(static_cast<std::size_t>(size_.blocks + size_.host_blocks)) {
  for (auto i = static_cast<std::int32_t>(blocks_.size()); i-- > 0;) pool_of(i).free.push_back(i);
  index_.reserve(blocks_.size());  // each entry has a block: its iterators stay valid
}

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

// The known blocks of the longest beginning that leaves the last token out, as far as there are
// blocks for those on the host. Blocks in use come first: their sequences use what is before them.
std::vector<std::int32_t> KeyValueCache::find(std::span<const std::uint32_t> tokens) const {
  const auto size = static_cast<std::size_t>(size_.shape.block_tokens);
  std::vector<std::int32_t> found;
  std::int64_t left = available_blocks();
  Beginning beginning;
  for (; tokens.size() > size; tokens = tokens.subspan(size)) {
    beginning.tokens.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(size));
    const auto entry = index_.find(beginning);
    if (entry == index_.end()) break;
    if (block(entry->second).users == 0 && left-- == 0) break;
    found.push_back(entry->second);
    beginning.before = block(entry->second).content;
  }
  return found;
}

KeyValueCache::Known KeyValueCache::known(std::span<const std::uint32_t> tokens) const {
  const std::vector<std::int32_t> found = find(tokens);
  const std::int64_t host = std::ranges::count_if(found, [&](auto i) { return on_host(i); });
  const std::int64_t unused =
      std::ranges::count_if(found, [&](auto i) { return block(i).users == 0; });
  return {.tokens = std::ssize(found) * size_.shape.block_tokens,
          .unused_blocks = unused - host,
          .host_blocks = host};
}

std::int64_t KeyValueCache::open(std::span<const std::uint32_t> tokens) {
  const auto free = std::ranges::find(sequences_, false, &Sequence::open);
  ZERO_CHECK(free != sequences_.end(), "the cache has no free slot of {}; close a sequence first",
             size_.slots);
  free->open = true;
  free->table = find(tokens);
  for (const std::int32_t i : free->table) use(i);  // all, before one makes way for another
  for (std::int32_t& i : free->table) {
    if (on_host(i)) i = move_back(i);
  }
  const std::int64_t length = std::ssize(free->table) * size_.shape.block_tokens;
  free->tokens.assign(tokens.begin(), tokens.begin() + length);
  counts_.reused += length;
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
      tokens > 0 && length % size_.shape.block_tokens != 0 && block(of.table.back()).users > 1;
  return more + (copies ? 1 : 0);
}

std::int64_t KeyValueCache::available_blocks() const { return device_pool_.available(); }

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
    if (of.tokens.size() == of.table.size() * size) of.table.push_back(take(device_pool_));
    of.tokens.push_back(token);
    if (of.tokens.size() == of.table.size() * size) learn(of);
  }
  counts_.appended += std::ssize(tokens);
}

void KeyValueCache::trim(std::int64_t slot, std::int64_t length) {
  Sequence& of = sequence(slot);
  ZERO_CHECK(length >= 0 && length <= std::ssize(of.tokens),
             "slot {} of the cache is trimmed to {} tokens; expected 0 to {}, as many as it holds",
             slot, length, of.tokens.size());
  of.tokens.resize(static_cast<std::size_t>(length));
  // Ends first, so that of what nobody uses a beginning outlives what follows it.
  for (; std::ssize(of.table) > div_ceil(length, size_.shape.block_tokens); of.table.pop_back()) {
    leave(of.table.back());
  }
}

void KeyValueCache::forget() {
  for (std::int32_t i = 0; i < std::ssize(blocks_); ++i) unlearn(i);
}

KeyValueCache::Usage KeyValueCache::usage() const {
  Usage usage = counts_;
  usage.total = size_.blocks;
  usage.used = size_.blocks - available_blocks();
  usage.known = std::ssize(device_pool_.unused);
  usage.host_total = size_.host_blocks;
  usage.host_used = std::ssize(host_pool_.unused);
  for (const Sequence& each : sequences_) usage.tokens += std::ssize(each.tokens);
  return usage;
}

KeyValueCache::Content KeyValueCache::content_before(const Sequence& sequence,
                                                     std::size_t block) const {
  return block == 0 ? kEmpty : this->block(sequence.table[block - 1]).content;
}

View KeyValueCache::part(std::int32_t i, std::int64_t layer) const {
  const std::int64_t bytes = size_.shape.block_bytes();
  if (!on_host(i)) return this->layer(layer).slice(i * bytes, bytes);
  return host_memory_.slice(((i - size_.blocks) * size_.layers + layer) * bytes, bytes);
}

void KeyValueCache::copy(std::int32_t from, std::int32_t to) {
  for (std::int64_t layer = 0; layer < size_.layers; ++layer) {
    device_.kernels().convert(device_.compute(), part(from, layer), part(to, layer));
  }
}

// What `from` was known for, `to` is, whose content was unknown.
void KeyValueCache::rename(std::int32_t from, std::int32_t to) {
  block(to).content = std::exchange(block(from).content, kUnknown);
  block(to).entry = block(from).entry;
  block(to).entry->second = to;
}

// A block with one user whose content is unknown. There must be one available.
std::int32_t KeyValueCache::take(Pool& pool) {
  if (pool.free.empty()) vacate(pool.unused.front());
  const std::int32_t i = pool.free.back();
  pool.free.pop_back();
  block(i).users = 1;
  return i;
}

// An unused block becomes free: its content moves to the host, or is forgotten.
void KeyValueCache::vacate(std::int32_t i) {
  if (on_host(i) || host_pool_.available() == 0) {
    ++counts_.forgotten;
    return unlearn(i);
  }
  use(i);
  const std::int32_t to = take(host_pool_);
  copy(i, to);
  rename(i, to);
  leave(to);
  leave(i);
  ++counts_.moved_out;
}

// The block of the device to which the content of a host block has moved, with its user.
std::int32_t KeyValueCache::move_back(std::int32_t i) {
  const std::int32_t to = take(device_pool_);
  copy(i, to);
  rename(i, to);
  leave(i);
  ++counts_.moved_back;
  return to;
}

void KeyValueCache::use(std::int32_t i) {
  if (block(i).users++ == 0) pool_of(i).unused.erase(block(i).unused);
}

void KeyValueCache::leave(std::int32_t i) {
  Block& of = block(i);
  if (--of.users > 0) return;
  Pool& pool = pool_of(i);
  if (of.content == kUnknown) {
    pool.free.push_back(i);
  } else {
    of.unused = pool.unused.insert(pool.unused.end(), i);
  }
}

void KeyValueCache::unlearn(std::int32_t i) {
  Block& of = block(i);
  if (of.content == kUnknown) return;
  index_.erase(of.entry);
  of.content = kUnknown;
  if (of.users == 0) {
    pool_of(i).unused.erase(of.unused);
    pool_of(i).free.push_back(i);
  }
}

// The last block, if tokens are to be written behind its own.
void KeyValueCache::make_writable(Sequence& sequence) {
  if (std::ssize(sequence.tokens) % size_.shape.block_tokens == 0) return;
  std::int32_t& last = sequence.table.back();
  if (block(last).users == 1) return unlearn(last);
  const std::int32_t own = take(device_pool_);
  copy(last, own);
  leave(last);
  last = own;
}

// The last block has become whole. If a block of this content is known, the sequence writes its own
// values there, which have the same bits, and shares it; one on the host is needed no more.
void KeyValueCache::learn(Sequence& sequence) {
  const Content before = content_before(sequence, sequence.table.size() - 1);
  if (before == kUnknown) return;
  std::int32_t& last = sequence.table.back();
  const auto end = sequence.tokens.end();
  const auto [entry, is_new] = index_.try_emplace(
      {before, std::vector<std::uint32_t>(end - size_.shape.block_tokens, end)}, last);
  if (is_new) {
    block(last).content = next_content_++;
    block(last).entry = entry;
  } else if (const std::int32_t known = entry->second; on_host(known)) {
    use(known);
    rename(known, last);
    leave(known);
  } else {
    use(known);
    leave(last);
    last = known;
  }
}

}  // namespace zero
