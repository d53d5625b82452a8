// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/generator.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/seconds_since.h"
#include "collectives/agreement.h"
#include "inference/inference_model.h"

namespace zero {
namespace {

using Clock = std::chrono::steady_clock;

/// A request that has not ended.
struct Ongoing {
  GenerationRequest request;  // its prompt is the scheduler's once it was added
  GenerationCallbacks callbacks;
  Clock::time_point submitted;
  std::int64_t generated = 0;
  double first_token = 0;
};

}  // namespace

struct Generator::State {
  State(InferenceModel& of, const GeneratorOptions& with)
      : model(of),
        options(with),
        scheduler(of.cache(), {.rows = of.options().rows,
                               .logit_rows = of.options().logit_rows,
                               .aging = with.aging}),
        sampler(of.vocabulary()) {}

  InferenceModel& model;
  const GeneratorOptions options;
  mutable std::mutex mutex;
  std::map<RequestId, Ongoing> submitted;  // guarded: not seen by step() yet
  std::vector<RequestId> cancelled;        // guarded: likewise
  RequestId next = 1;                      // guarded
  std::int64_t open = 0;                   // guarded: requests without their on_end

  // Of the thread in step().
  Scheduler scheduler;
  Sampler sampler;
  std::map<RequestId, Ongoing> ongoing;
  DraftStats draft_stats;
  std::string pass_error;

  void tell(std::string_view phase) const {
    if (options.on_phase) options.on_phase(phase);
  }
  void check(const GenerationRequest& request) const;
  void admit_submitted();
  void guess();
  std::string pass(const std::vector<Scheduler::Part>& plan);
  std::optional<GenerationEnd> advance(RequestId id, std::span<const float> logits);
  std::optional<GenerationEnd> advance(const Scheduler::Part& part, std::int64_t row);
  void end(GenerationEnd end);
};

namespace {

GenerationEnd ended(FinishReason reason, std::string error = {}) {
  GenerationEnd end;
  end.reason = reason;
  end.error = std::move(error);
  return end;
}

}  // namespace

Generator::Generator(InferenceModel& model, const GeneratorOptions& options)
    : state_(std::make_unique<State>(model, options)) {}

Generator::~Generator() = default;

void Generator::State::check(const GenerationRequest& request) const {
  const std::int64_t prompt = std::ssize(request.prompt);
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
  constexpr std::int64_t kMost = GenerationRequest::kMostPriority;
  ZERO_CHECK(request.priority >= -kMost && request.priority <= kMost,
             "priority is {}, expected {} to {}", request.priority, -kMost, kMost);
  validate(request.sampling, "request");
}

RequestId Generator::submit(GenerationRequest request, GenerationCallbacks callbacks) {
  ZERO_CHECK(callbacks.on_token && callbacks.on_end, "a request without callbacks");
  state_->check(request);
  const std::lock_guard lock(state_->mutex);
  const RequestId id = state_->next++;
  state_->submitted.emplace(id, Ongoing{.request = std::move(request),
                                        .callbacks = std::move(callbacks),
                                        .submitted = Clock::now()});
  ++state_->open;
  return id;
}

void Generator::cancel(RequestId request) {
  const std::lock_guard lock(state_->mutex);
  if (request < state_->next) state_->cancelled.push_back(request);
}

bool Generator::idle() const {
  const std::lock_guard lock(state_->mutex);
  return state_->open == 0;
}

const Scheduler& Generator::scheduler() const { return state_->scheduler; }

Generator::DraftStats Generator::draft_stats() const { return state_->draft_stats; }

const std::string& Generator::pass_error() const { return state_->pass_error; }

void Generator::State::end(GenerationEnd end) {
  const auto at = ongoing.find(end.request);
  const Ongoing request = std::move(at->second);
  ongoing.erase(at);
  if (options.drafter != nullptr) options.drafter->end(end.request);
  end.generated = request.generated;
  end.first_token = request.first_token;
  end.total = seconds_since(request.submitted);
  request.callbacks.on_end(end);
  const std::lock_guard lock(mutex);
  --open;
}

// What other threads have asked for.
void Generator::State::admit_submitted() {
  std::map<RequestId, Ongoing> joining;
  std::vector<RequestId> leaving;
  {
    const std::lock_guard lock(mutex);
    joining.swap(submitted);
    leaving.swap(cancelled);
  }
  for (auto& [id, request] : joining) {
    scheduler.add(id, std::move(request.request.prompt), request.request.priority);
  }
  ongoing.merge(joining);
  for (const RequestId id : leaving) {
    if (!ongoing.contains(id)) continue;
    scheduler.remove(id);
    GenerationEnd end = ended(FinishReason::cancelled);
    end.request = id;
    this->end(std::move(end));
  }
}

// Tokens that may follow those of the requests that generate, but not beyond their ends.
void Generator::State::guess() {
  if (options.drafter == nullptr || !draft_stats.error.empty()) return;
  std::vector<Drafter::Draft> drafts;
  for (const RequestId id : scheduler.generating()) {
    const Ongoing& request = ongoing.at(id);
    const std::int64_t most =
        std::min(options.draft_tokens, request.request.max_tokens - request.generated - 1);
    if (most <= 0) continue;
    drafts.push_back({.request = id,
                      .tokens = scheduler.tokens(id),
                      .sampling = &request.request.sampling,
                      .most = most});
  }
  if (!drafts.empty()) tell("draft");
  try {
    options.drafter->propose(drafts);
  } catch (const std::exception& error) {
    draft_stats.error = error.what();  // no answer depends on guesses: they end
    return;
  }
  for (const Drafter::Draft& draft : drafts) scheduler.guess(draft.request, draft.guessed);
}

// Why the pass failed; empty if it did not.
std::string Generator::State::pass(const std::vector<Scheduler::Part>& plan) {
  std::vector<InferenceModel::Part> parts;
  for (const Scheduler::Part& each : plan) parts.push_back(each.part);
  // A request that generates asks for the logits of all its tokens.
  const bool reads = std::ranges::any_of(parts, [](const InferenceModel::Part& part) {
    return std::ssize(part.tokens) > part.logits;
  });
  tell(reads ? "prefill" : "decode");
  try {
    model.forward(parts);
    return {};
  } catch (const AgreedError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return what.empty() ? "the pass failed" : what;
  }
}

// Chooses the next token; returns the end if this was the last one.
std::optional<GenerationEnd> Generator::State::advance(RequestId id,
                                                       std::span<const float> logits) {
  Ongoing& request = ongoing.at(id);
  const std::span<const std::uint32_t> tokens = scheduler.tokens(id);
  SampledToken chosen;
  Flow flow = Flow::more;
  try {
    chosen = sampler.choose(logits, tokens, request.request.sampling, tokens.size());
    scheduler.push(id, chosen.id);
    if (++request.generated == 1) request.first_token = seconds_since(request.submitted);
    flow = request.callbacks.on_token(
        {.request = id, .id = chosen.id, .log_probability = chosen.log_probability});
  } catch (const std::exception& error) {
    return ended(FinishReason::failed, error.what());
  }
  const std::vector<std::uint32_t>& ends = request.request.end_tokens;
  if (std::ranges::find(ends, chosen.id) != ends.end()) return ended(FinishReason::end_token);
  if (flow == Flow::stop) return ended(FinishReason::stopped);
  if (request.generated == request.request.max_tokens) return ended(FinishReason::length);
  return std::nullopt;
}

// Chooses a token for each row of logits, as long as it is the one that the next row was computed
// with.
std::optional<GenerationEnd> Generator::State::advance(const Scheduler::Part& part,
                                                       std::int64_t row) {
  const std::span<const std::uint32_t> read = part.part.tokens.last(
      static_cast<std::size_t>(part.part.logits));  // before each choice, the last token read
  std::optional<GenerationEnd> end;
  draft_stats.proposed += part.part.logits - 1;
  for (std::size_t i = 0; i < read.size(); ++i) {
    end = advance(part.request, model.logits(row + static_cast<std::int64_t>(i)));
    if (end || i + 1 == read.size() || scheduler.tokens(part.request).back() != read[i + 1]) break;
    ++draft_stats.accepted;
  }
  if (!end) scheduler.drop_rejected(part.request);
  return end;
}

bool Generator::step() {
  State& s = *state_;
  s.admit_submitted();
  s.guess();
  const std::vector<Scheduler::Part> plan = s.scheduler.plan();
  if (plan.empty()) return false;
  s.pass_error = s.pass(plan);
  std::int64_t row = 0;
  std::vector<GenerationEnd> ends;
  for (const Scheduler::Part& each : plan) {
    std::optional<GenerationEnd> end;
    if (!s.pass_error.empty()) {
      end = ended(FinishReason::failed, s.pass_error);
    } else if (each.part.logits > 0) {
      end = s.advance(each, row);
      row += each.part.logits;
    }
    if (!end) continue;
    s.scheduler.remove(each.request);
    end->request = each.request;
    ends.push_back(std::move(*end));
  }
  for (GenerationEnd& end : ends) s.end(std::move(end));
  return true;
}

}  // namespace zero
