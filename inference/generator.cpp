// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/generator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "inference/inference_model.h"

namespace zero {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A request that waits or runs.
struct Sequence {
  RequestId id = 0;
  GenerationRequest request;
  GenerationCallbacks callbacks;
  Clock::time_point submitted;
  std::int64_t slot = -1;             ///< of the cache, once it runs
  std::vector<std::uint32_t> tokens;  ///< prompt and generated
  std::int64_t read = 0;              ///< tokens that the model has read
  std::int64_t part = 0;              ///< tokens of the pass under way
  double first_token = 0;

  std::int64_t unread() const { return static_cast<std::int64_t>(tokens.size()) - read; }
  std::int64_t generated() const {
    return static_cast<std::int64_t>(tokens.size() - request.prompt.size());
  }
};

}  // namespace

struct Generator::State {
  explicit State(InferenceModel& of) : model(of), sampler(of.vocabulary()) {}

  InferenceModel& model;
  mutable std::mutex mutex;
  std::deque<Sequence> waiting;   // guarded
  std::set<RequestId> active;     // guarded: those without their on_end
  std::set<RequestId> cancelled;  // guarded: some of them
  RequestId next = 1;             // guarded

  // Of the thread in step().
  Sampler sampler;
  std::vector<Sequence> running;
  std::vector<std::int64_t> free_slots;

  void check(const GenerationRequest& request) const;
  void report(const Sequence& sequence, const GenerationEnd& end) {
    sequence.callbacks.on_end(end);
    const std::lock_guard lock(mutex);
    active.erase(sequence.id);
  }
  /// Gives back the sequence's slot.
  void leave(const Sequence& sequence) {
    model.cache().trim(sequence.slot, 0);
    free_slots.push_back(sequence.slot);
  }
  std::vector<Sequence> take_up();
  std::vector<InferenceModel::Part> plan();
  std::string pass();
  std::optional<GenerationEnd> advance(Sequence& sequence, std::span<const float> logits);
};

namespace {

GenerationEnd end_of(const Sequence& sequence, FinishReason reason) {
  return {.request = sequence.id,
          .reason = reason,
          .generated = sequence.generated(),
          .first_token = sequence.first_token,
          .total = seconds_since(sequence.submitted)};
}

}  // namespace

Generator::Generator(InferenceModel& model) : state_(std::make_unique<State>(model)) {
  const InferenceOptions& options = model.options();
  ZERO_CHECK(options.rows >= options.requests,
             "inference: rows is {}, expected at least as many as requests = {}: each running "
             "request reads one token in a pass",
             options.rows, options.requests);
  for (std::int64_t slot = options.requests - 1; slot >= 0; --slot) {
    model.cache().trim(slot, 0);
    state_->free_slots.push_back(slot);
  }
}

Generator::~Generator() = default;

void Generator::State::check(const GenerationRequest& request) const {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  ZERO_CHECK(prompt >= 1, "the prompt has no token, expected at least one");
  ZERO_CHECK(request.max_tokens >= 1, "max_tokens is {}, expected at least 1", request.max_tokens);
  const std::int64_t most = model.options().request_tokens;
  ZERO_CHECK(prompt <= most && request.max_tokens <= most - prompt,
             "the prompt has {} tokens, and {} are to follow; expected at most {} in all", prompt,
             request.max_tokens, most);
  for (const std::uint32_t token : request.prompt) {
    ZERO_CHECK(token < model.vocabulary(), "the prompt has token {}, expected 0 to {}", token,
               model.vocabulary() - 1);
  }
  validate(request.sampling, "request");
}

RequestId Generator::submit(GenerationRequest request, GenerationCallbacks callbacks) {
  ZERO_CHECK(callbacks.on_token && callbacks.on_end, "a request without callbacks");
  state_->check(request);
  std::vector<std::uint32_t> tokens = request.prompt;
  const std::lock_guard lock(state_->mutex);
  const RequestId id = state_->next++;
  state_->active.insert(id);
  state_->waiting.push_back({.id = id,
                             .request = std::move(request),
                             .callbacks = std::move(callbacks),
                             .submitted = Clock::now(),
                             .tokens = std::move(tokens)});
  return id;
}

void Generator::cancel(RequestId request) {
  const std::lock_guard lock(state_->mutex);
  if (state_->active.contains(request)) state_->cancelled.insert(request);
}

bool Generator::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->active.empty();
}

// Removes cancelled sequences, and gives free slots to those that waited longest.
std::vector<Sequence> Generator::State::take_up() {
  const std::lock_guard lock(mutex);
  std::vector<Sequence> ended;
  const auto remove_cancelled = [&](auto& sequences) {
    const auto stay = std::stable_partition(sequences.begin(), sequences.end(), [&](const auto& s) {
      return !cancelled.contains(s.id);
    });
    for (auto at = stay; at != sequences.end(); ++at) {
      if (at->slot >= 0) leave(*at);
      ended.push_back(std::move(*at));
    }
    sequences.erase(stay, sequences.end());
  };
  remove_cancelled(waiting);
  remove_cancelled(running);
  cancelled.clear();
  while (!free_slots.empty() && !waiting.empty()) {
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
    running.back().slot = free_slots.back();
    free_slots.pop_back();
  }
  return ended;
}

// One token of each sequence that generates, then as much of the prompts as there is room for.
std::vector<InferenceModel::Part> Generator::State::plan() {
  std::int64_t room = model.options().rows;
  for (Sequence& sequence : running) {
    sequence.part = sequence.unread() == 1 ? 1 : 0;
    room -= sequence.part;
  }
  std::vector<InferenceModel::Part> parts;
  for (Sequence& sequence : running) {
    if (sequence.part == 0) {
      sequence.part = std::min(room, sequence.unread());
      room -= sequence.part;
    }
    if (sequence.part == 0) continue;
    parts.push_back({.slot = sequence.slot,
                     .tokens = std::span<const std::uint32_t>(sequence.tokens)
                                   .subspan(static_cast<std::size_t>(sequence.read),
                                            static_cast<std::size_t>(sequence.part)),
                     .logits = sequence.part == sequence.unread() ? 1 : 0});
  }
  return parts;
}

// Chooses the next token; returns the end if this was the last one.
std::optional<GenerationEnd> Generator::State::advance(Sequence& sequence,
                                                       std::span<const float> logits) {
  std::uint32_t id = 0;
  Flow flow = Flow::more;
  try {
    const SampledToken chosen =
        sampler.choose(logits, sequence.tokens, sequence.request.sampling, sequence.tokens.size());
    id = chosen.id;
    sequence.tokens.push_back(id);
    if (sequence.generated() == 1) sequence.first_token = seconds_since(sequence.submitted);
    flow = sequence.callbacks.on_token(
        {.request = sequence.id, .id = id, .log_probability = chosen.log_probability});
  } catch (const std::exception& error) {
    GenerationEnd end = end_of(sequence, FinishReason::failed);
    end.error = error.what();
    return end;
  }
  const std::vector<std::uint32_t>& ends = sequence.request.end_tokens;
  if (std::ranges::find(ends, id) != ends.end()) {
    return end_of(sequence, FinishReason::end_token);
  }
  if (flow == Flow::stop) return end_of(sequence, FinishReason::stopped);
  if (sequence.generated() == sequence.request.max_tokens) {
    return end_of(sequence, FinishReason::length);
  }
  return std::nullopt;
}

// Why the pass failed; empty if it did not.
std::string Generator::State::pass() {
  try {
    model.forward(plan());
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

void Generator::step() {
  State& s = *state_;
  for (const auto& sequence : s.take_up()) {
    s.report(sequence, end_of(sequence, FinishReason::cancelled));
  }
  const std::string failure = s.running.empty() ? "" : s.pass();
  std::int64_t row = 0;
  std::vector<std::pair<Sequence, GenerationEnd>> ended;
  std::vector<Sequence> going;
  for (Sequence& sequence : s.running) {
    sequence.read += sequence.part;
    std::optional<GenerationEnd> end;
    if (!failure.empty()) {
      end = end_of(sequence, FinishReason::failed);
      end->error = failure;
    } else if (sequence.part > 0 && sequence.unread() == 0) {
      end = s.advance(sequence, s.model.logits(row++));
    }
    if (end) {
      s.leave(sequence);
      ended.emplace_back(std::move(sequence), *end);
    } else {
      going.push_back(std::move(sequence));
    }
  }
  s.running = std::move(going);
  for (const auto& [sequence, end] : ended) s.report(sequence, end);
}

}  // namespace zero
