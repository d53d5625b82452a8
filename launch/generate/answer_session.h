// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inference/drafter.h"
#include "inference/generator.h"
#include "launch/generate/answer.h"
#include "launch/generate/generate_program.h"
#include "launch/generate/prompt_encoder.h"
#include "launch/signals.h"

namespace zero {

/// The first signal that asks for an end waits for the pass under way, if answers are coming; any
/// other ends the process at once. SIGUSR1 asks for a line about the cache.
class Interrupts {
 public:
  Interrupts() : watcher_([this](int signal) { return arrived(signal); }) {}
  void answering(bool yes) { answering_ = yes; }
  int signal() const { return signal_; }  ///< 0: none
  /// Whether SIGUSR1 has come since the last call.
  bool take_report() { return report_.exchange(false); }

 private:
  SignalWatcher::AfterSignal arrived(int signal);

  std::atomic<bool> answering_{false};
  std::atomic<bool> report_{false};
  std::atomic<int> signal_{0};
  SignalWatcher watcher_;
};

/// A prompt that can be answered.
struct AcceptedPrompt {
  GenerationRequest request;
  Answer::About about;
  std::string where;
};

/// Answers prompts on standard output; errors of single prompts, and what people want to know, go
/// to standard error.
class AnswerSession {
 public:
  /// Flags and interrupts must outlive the session. Throws zero::Error if there is no model or
  /// tokenizer.
  AnswerSession(const GenerateFlags& flags, Interrupts& interrupts);

  PromptEncoder& encoder() { return encoder_; }
  /// Complains about those that cannot be answered.
  std::vector<AcceptedPrompt> accept(std::vector<Prompt> prompts);
  /// Reports a prompt that gets no answer.
  void refuse(std::int64_t number, const std::string& message);
  /// Opens the model, and that which guesses, for at most so many tokens a request. Throws
  /// zero::Error, before any memory is taken, if the machine has not enough.
  void open(std::int64_t requests, std::int64_t request_tokens);
  /// Answers all, in the order in which they are given.
  void answer(std::vector<AcceptedPrompt> prompts);
  /// The lines about speed, cache and guesses; the exit status.
  int finish() const;

 private:
  struct Progress {
    std::size_t next = 0;  // the first that is not shown whole
  };
  InferenceOptions options(std::int64_t requests, std::int64_t request_tokens) const;
  InferenceOptions draft_options(const InferenceOptions& options, const std::string& folder) const;
  void report(const std::string& message);
  void report_cache() const;
  static void show_text(std::deque<Answer>& answers, Progress& progress);
  void show_lines(const std::deque<Answer>& answers, const std::vector<std::size_t>& ended,
                  Progress& progress) const;
  void count(const Answer& answer, const AcceptedPrompt& prompt);

  const GenerateFlags& flags_;
  Interrupts& interrupts_;
  std::string folder_;
  PromptEncoder encoder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<InferenceModel> model_;
  std::unique_ptr<InferenceModel> draft_model_;
  std::unique_ptr<Drafter> drafter_;
  std::unique_ptr<Generator> generator_;
  bool failed_ = false;
  double seconds_ = 0;
  double first_token_ = 0;  // the earliest
  std::int64_t prompts_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t prompt_tokens_ = 0;
};

}  // namespace zero
