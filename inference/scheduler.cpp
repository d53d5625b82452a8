// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"

namespace zero {

Scheduler::Scheduler(KeyValueCache& cache, const Options& options)
    : cache_(cache), options_(options) {
  ZERO_CHECK(options.rows >= cache.slots(),
             "scheduler: rows is {}, expected at least as many as requests = {}: each running "
             "request reads one token in a pass",
             options.rows, cache.slots());
  ZERO_CHECK(options.logit_rows >= cache.slots(),
             "scheduler: logit_rows is {}, expected at least as many as requests = {}",
             options.logit_rows, cache.slots());
  ZERO_CHECK(options.aging >= 1, "scheduler: aging is {}, expected at least 1 step", options.aging);
}

Scheduler::~Scheduler() {
  for (const auto& [id, request] : requests_) {
    if (request.slot >= 0) cache_.close(request.slot);
  }
}

void Scheduler::add(RequestId id, std::vector<std::uint32_t> prompt, std::int64_t priority) {
  const PriorityKey key{step_ - checked_mul(priority, options_.aging), id};
  const bool is_new =
      requests_.emplace(id, Request{.key = key, .tokens = std::move(prompt)}).second;
  ZERO_CHECK(is_new, "scheduler: request {} was added before, expected a new one", id);
  waiting_.insert(key);
}

void Scheduler::remove(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return;
  if (at->second.slot >= 0) cache_.close(at->second.slot);
  running_.erase(at->second.key);
  waiting_.erase(at->second.key);
  requests_.erase(at);
}

std::int64_t Scheduler::unread(const Request& request) const {
  return std::ssize(request.tokens) - cache_.length(request.slot);
}

void Scheduler::preempt_last() {
  const PriorityKey key = *running_.rbegin();
  Request& request = requests_.at(key.id);
  cache_.close(request.slot);
  request.slot = -1;
  request.guessed.clear();
  running_.erase(key);
  waiting_.insert(key);
  ++preemptions_;
}

// Preempts from the end of the order, until the cache has blocks for what the others have to read.
void Scheduler::keep_running() {
  while (claimed_blocks() > cache_.available_blocks()) preempt_last();
}

std::int64_t Scheduler::claimed_blocks() const {
  std::int64_t blocks = 0;
  for (const PriorityKey& key : running_) {
    const Request& request = requests_.at(key.id);
    blocks += cache_.blocks_needed(request.slot, unread(request));
  }
  return blocks;
}

std::int64_t Scheduler::unread_tokens() const {
  std::int64_t tokens = 0;
  for (const PriorityKey& key : running_) tokens += unread(requests_.at(key.id));
  return tokens;
}

// Running requests whose tables can become longer than what they claim.
std::int64_t Scheduler::growing() const {
  const std::int64_t longest = div_ceil(cache_.tokens(), cache_.shape().block_tokens);
  return std::ranges::count_if(running_, [&](const PriorityKey& key) {
    const Request& request = requests_.at(key.id);
    const std::int64_t claimed = cache_.blocks_needed(request.slot, unread(request));
    return std::ssize(cache_.blocks(request.slot)) + claimed < longest;
  });
}

// Blocks that joining takes from those available.
std::int64_t Scheduler::joining_blocks(const Request& request) const {
  const BlockPool::Prefix cached = cache_.cached_prefix(request.tokens);
  const std::int64_t size = cache_.shape().block_tokens;
  return div_ceil(std::ssize(request.tokens), size) - cached.tokens / size + cached.unused_blocks +
         cached.host_blocks;
}

// Whether there are blocks for all of the request's tokens beside those that the running ones
// claim, and one more for each of them that can grow: without, it might be preempted in the next
// step.
bool Scheduler::fits(const Request& request) const {
  return claimed_blocks() + growing() + joining_blocks(request) <= cache_.available_blocks();
}

// Whether it would fit if all that run behind it in the order were preempted.
bool Scheduler::fits_before(const Request& request) const {
  std::int64_t claimed = 0;
  std::int64_t freed = 0;
  for (const PriorityKey& key : running_) {
    const Request& other = requests_.at(key.id);
    if (key < request.key) {
      claimed += cache_.blocks_needed(other.slot, unread(other));
    } else {
      freed += std::ssize(cache_.blocks(other.slot));
    }
  }
  return claimed + joining_blocks(request) <= cache_.available_blocks() + freed;
}

// Waiting requests in order, until one does not fit. One that comes before some that run has the
// last of them preempted. A request joins only once the next pass has room for it: by then, what it
// shares with those before it may be cached.
void Scheduler::join() {
  while (!waiting_.empty() && unread_tokens() < options_.rows) {
    const PriorityKey key = *waiting_.begin();
    Request& request = requests_.at(key.id);
    if (running() == cache_.slots() || !fits(request)) {
      if (running_.empty() || *running_.rbegin() < key || !fits_before(request)) return;
      preempt_last();
      continue;
    }
    request.slot = cache_.open(request.tokens);
    waiting_.erase(key);
    running_.insert(key);
  }
}

std::vector<RequestId> Scheduler::generating() const {
  std::vector<RequestId> ids;
  for (const PriorityKey& key : running_) {
    if (unread(requests_.at(key.id)) == 1) ids.push_back(key.id);
  }
  return ids;
}

void Scheduler::guess(RequestId id, std::span<const std::uint32_t> tokens) {
  Request& request = requests_.at(id);
  request.guessed = {request.tokens.back()};
  request.guessed.insert(request.guessed.end(), tokens.begin(), tokens.end());
}

void Scheduler::drop_rejected(RequestId id) {
  Request& request = requests_.at(id);
  request.guessed.clear();
  cache_.trim(request.slot, std::min(cache_.length(request.slot), std::ssize(request.tokens) - 1));
}

// A token of each request that generates, then as much of the others as there is room for, then
// guesses.
std::vector<Scheduler::Part> Scheduler::plan() {
  ++step_;
  keep_running();
  join();
  keep_running();  // what joins may share a block that another is about to write, and then copies
  std::int64_t room = options_.rows;
  std::int64_t logits = options_.logit_rows;
  for (const PriorityKey& key : running_) {
    if (unread(requests_.at(key.id)) == 1) --room;
  }
  std::vector<Part> parts;
  for (const PriorityKey& key : running_) {
    const Request& request = requests_.at(key.id);
    const std::int64_t all = unread(request);
    const std::int64_t count = all == 1 ? 1 : std::min(room, all);
    if (count == 0) continue;
    if (all > 1) room -= count;
    const auto tokens = std::span<const std::uint32_t>(request.tokens)
                            .last(static_cast<std::size_t>(all))
                            .first(static_cast<std::size_t>(count));
    parts.push_back({key.id, {request.slot, tokens, count == all ? 1 : 0}});
    logits -= parts.back().part.logits;
  }
  add_guesses(parts, std::min(room, logits));
  return parts;
}

void Scheduler::add_guesses(std::vector<Part>& parts, std::int64_t room) {
  std::int64_t blocks = cache_.available_blocks() - claimed_blocks();
  for (Part& each : parts) {
    Request& request = requests_.at(each.request);
    if (request.guessed.empty()) continue;
    InferenceModel::Part& part = each.part;
    const std::int64_t longest = cache_.tokens() - cache_.length(part.slot) - 1;
    const std::int64_t claimed = cache_.blocks_needed(part.slot, 1);
    const auto more = [&](std::int64_t count) {
      return cache_.blocks_needed(part.slot, 1 + count) - claimed;
    };
    std::int64_t count = std::min({std::ssize(request.guessed) - 1, room, longest});
    while (count > 0 && more(count) > blocks) --count;
    if (count <= 0) continue;
    room -= count;
    blocks -= more(count);
    part.tokens =
        std::span<const std::uint32_t>(request.guessed).first(static_cast<std::size_t>(1 + count));
    part.logits = 1 + count;
  }
}

void Scheduler::push(RequestId id, std::uint32_t token) {
  requests_.at(id).tokens.push_back(token);
}

}  // namespace zero
