// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "inference/generation_request.h"
#include "inference/inference_model.h"

namespace zero {

/// Decides which requests run and what each pass of the model reads. Requests have an order: by
/// arrival, where a priority of p counts as an arrival p * aging steps earlier, so that no request
/// waits for ever. In this order they join when the cache has blocks for all their unread tokens,
/// and read parts of prompts beside the tokens of those that generate. If blocks run out, the last
/// request in the order is preempted: its blocks are given back, and its tokens are read again
/// later, but for those in blocks still cached, on the device or the host. The first request in
/// the order always goes on. Calls decide alike on every rank that makes the same ones: nothing
/// depends on clocks or addresses. For one thread.
class Scheduler {
 public:
  struct Options {
    std::int64_t rows = 256;  ///< tokens of one pass, at most; not fewer than the cache has slots
    std::int64_t logit_rows =
        256;  ///< of these with logits, at most; not fewer than the cache has slots
    std::int64_t aging = 1024;  ///< steps that one level of priority is worth
  };
  /// `cache` must outlive the scheduler, which alone opens and closes its sequences. Throws
  /// zero::Error if a pass has fewer rows or logits than the cache has slots, or aging is below 1.
  Scheduler(KeyValueCache& cache, const Options& options);
  /// Closes all sequences.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// A request that waits. The id must be new, the prompt not empty.
  void add(RequestId id, std::vector<std::uint32_t> prompt, std::int64_t priority = 0);
  /// The request has ended. Does nothing if there is none of this id.
  void remove(RequestId id);
  bool empty() const { return requests_.empty(); }

  struct Part {
    RequestId request = 0;
    InferenceModel::Part part;  ///< its tokens live until push() or remove() of the request
  };
  /// The parts of the next pass, each request at most once; logits are asked for where a token is
  /// to be generated. Empty if nothing can run. The model reads all parts, or the requests are
  /// removed.
  std::vector<Part> plan();
  /// The token generated behind the last, once the model has read all before.
  void push(RequestId id, std::uint32_t token);

  /// Running requests of which the model has read all tokens but the last: the next pass generates
  /// for them. In order.
  std::vector<RequestId> generating() const;
  /// Tokens that may follow the last: the next plan has the model read them behind it, as many as
  /// there is room for, and asks for the logits of all.
  void guess(RequestId id, std::span<const std::uint32_t> tokens);
  /// After push() of the tokens chosen: what the model has read of other guesses is forgotten.
  void drop_rejected(RequestId id);

  /// Prompt and generated tokens.
  std::span<const std::uint32_t> tokens(RequestId id) const { return requests_.at(id).tokens; }
  std::int64_t running() const { return std::ssize(running_); }
  std::int64_t waiting() const { return std::ssize(waiting_); }
  /// Since the start.
  std::int64_t preemptions() const { return preemptions_; }

 private:
  /// Less: earlier.
  struct PriorityKey {
    std::int64_t arrival = 0;  // in steps, less what the priority is worth
    RequestId id = 0;
    auto operator<=>(const PriorityKey&) const = default;
  };
  struct Request {
    PriorityKey key;
    std::vector<std::uint32_t> tokens{};
    std::int64_t slot = -1;  // of the cache, while it runs
    // The last token and guesses behind it, of the next plan or the one under way; else empty.
    std::vector<std::uint32_t> guessed{};
  };
  std::int64_t unread(const Request& request) const;
  void preempt_last();
  void keep_running();
  void join();
  bool fits(const Request& request) const;
  bool fits_before(const Request& request) const;
  std::int64_t growing() const;
  std::int64_t joining_blocks(const Request& request) const;
  std::int64_t unread_tokens() const;
  std::int64_t claimed_blocks() const;
  void add_guesses(std::vector<Part>& parts, std::int64_t room);

  KeyValueCache& cache_;
  const Options options_;
  std::map<RequestId, Request> requests_;
  std::set<PriorityKey> running_, waiting_;
  std::int64_t step_ = 0;
  std::int64_t preemptions_ = 0;
};

}  // namespace zero
