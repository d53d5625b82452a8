// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "inference/drafter.h"
#include "inference/generation_request.h"
#include "inference/scheduler.h"

namespace zero {

struct GeneratorOptions {
  std::int64_t aging = 1024;      ///< steps that one level of priority is worth
  Drafter* drafter = nullptr;     ///< must outlive the generator; null: no guesses
  std::int64_t draft_tokens = 3;  ///< to guess for a request in a step, at most
  /// Told of what a step is about to do, on the thread in step(): "draft", then "prefill", a pass
  /// that reads parts of prompts, or "decode", one that does not. Null: nobody is. Must not throw.
  std::function<void(std::string_view)> on_phase{};
};

/// Continues prompts. Requests wait, join the running ones between two steps, may be preempted and
/// leave when they end, as Scheduler decides. A request's tokens depend on the request and the
/// model alone, not on the requests it runs beside. submit(), cancel() and idle() may be called by
/// any thread, step() by one at a time.
class Generator {
 public:
  /// `model` must outlive the generator, which alone uses its cache. Throws zero::Error if a pass
  /// of the model has fewer rows than the cache has slots.
  explicit Generator(InferenceModel& model, const GeneratorOptions& options = {});
  /// Requests that have not ended get no callback.
  ~Generator();

  /// Both callbacks must be there. Throws zero::Error if the prompt is empty or has a token outside
  /// the vocabulary, if max_tokens is below 1, if both together exceed the model's request_tokens,
  /// or if priority or sampling is out of range. Other requests go on.
  RequestId submit(GenerationRequest request, GenerationCallbacks callbacks);
  /// Ends a request at the next step. Nothing happens if it has ended or never was.
  void cancel(RequestId request);
  /// Whether every request has had its on_end.
  bool idle() const;
  /// One pass of the model: a part of the unread prompts, and one token (and guesses) of each other
  /// running request. If the pass fails, its requests fail; if all ranks of the model fail alike
  /// (AgreedError), that is thrown. False if there was nothing to compute.
  bool step();
  /// Of the thread in step().
  const Scheduler& scheduler() const;
  /// Tokens that the drafter guessed and the model read, and those of them that were kept.
  struct DraftStats {
    std::int64_t proposed = 0;
    std::int64_t accepted = 0;
    std::string error{};  ///< why the drafter failed and is asked no more; empty: it did not
  };
  DraftStats draft_stats() const;
  /// Why the last pass failed; empty if it did not.
  const std::string& pass_error() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace zero
