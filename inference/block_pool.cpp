// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/block_pool.h"

#include <utility>

#include "base/mixed_bits.h"

namespace zero {

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

}  // namespace zero
