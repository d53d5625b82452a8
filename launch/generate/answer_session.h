// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "inference/generation_request.h"
#include "launch/flight/run_phases.h"
#include "launch/generate/answer.h"
#include "launch/generate/answer_printer.h"
#include "launch/generate/answer_ranks.h"
#include "launch/generate/prompt_encoder.h"
#include "launch/process/signals.h"

namespace zero {

class AgreedError;
class AnswerModels;
class Communicator;
class Device;
class ProcessFaults;
class RunFaults;
enum class DeviceKind : std::uint8_t;
struct AnswerNeeds;
struct AnswerPlan;
struct GenerateFlags;

/// A prompt that can be answered.
struct AcceptedPrompt {
  GenerationRequest request{};
  std::vector<std::string> stop{};  ///< texts that end the answer before them
  std::string where{};              ///< Prompt::where
  std::int64_t number = 0;          ///< Prompt::number
};

/// Prompts in bytes, for the other ranks of the same program, and back.
std::string encoded(const std::vector<AcceptedPrompt>& prompts);
std::vector<AcceptedPrompt> decoded_prompts(std::string_view bytes);

/// The first signal that asks for an end waits for the pass under way, if answers are coming; any
/// other ends the process at once, unless it comes so soon that it is the same one, sent by a
/// launcher too. SIGUSR1 asks for a line about the cache.
class Interrupts {
 public:
  /// `ranks`: of several, whose watchdogs are told, and take over where a rank has died. Must
  /// outlive this object.
  explicit Interrupts(ProcessFaults* ranks = nullptr)
      : ranks_(ranks), watcher_([this](int signal) { return arrived(signal); }) {}
  void answering(bool yes) { answering_ = yes; }
  int signal() const { return signal_; }  ///< 0: none
  /// Whether SIGUSR1 has come since the last call.
  bool take_report() { return report_.exchange(false); }

 private:
  SignalWatcher::AfterSignal arrived(int signal);

  ProcessFaults* ranks_;
  std::atomic<bool> answering_{false};
  std::atomic<bool> report_{false};
  std::atomic<int> signal_{0};
  std::chrono::steady_clock::time_point first_{};  // of the watcher's thread
  SignalWatcher watcher_;
};

/// Answers prompts on standard output; errors of single prompts, and what people want to know, go
/// to standard error. On several ranks each has a session; the first reads prompts and prints, and
/// all calls but accept() and refuse() are collective.
class AnswerSession {
 public:
  /// References must outlive the session, and `faults`, which may be null. Throws zero::Error if
  /// there is no model or tokenizer.
  AnswerSession(const GenerateFlags& flags, Interrupts& interrupts, Communicator& world,
                RunFaults* faults = nullptr);
  ~AnswerSession();

  PromptEncoder& encoder() { return encoder_; }
  AnswerRanks& ranks() { return ranks_; }
  /// A phase begins (PhaseListener).
  void phase(std::string_view name) { phases_.at(steps_ == 0 ? -1 : steps_, name); }
  /// Settings of prompts that have none of their own: the flags', then those of the model's
  /// generation_config.json; a line tells what that file set.
  PromptSettings usual_settings() const;
  /// Complains about those that cannot be answered.
  std::vector<AcceptedPrompt> accept(std::vector<Prompt> prompts);
  /// Reports a prompt that gets no answer.
  void refuse(std::int64_t number, const std::string& message);
  /// Opens AnswerModels for these prompts, or for one after another of at most the context.
  void open(const std::vector<AcceptedPrompt>& prompts);
  void open_for_terminal();
  /// A plan of that, for `world` ranks; those of --plan, which need not be there. If there are no
  /// prompts, of flags.requests of the context.
  AnswerPlan plan(const std::vector<AcceptedPrompt>& prompts, int world);
  /// Answers all, equal on all ranks, in the order in which they are given.
  void answer(const std::vector<AcceptedPrompt>& prompts);
  /// The lines about speed, cache and guesses; the exit status, the same on all ranks.
  int finish();

 private:
  /// A request that this rank computes.
  struct Own {
    std::size_t number = 0;  // among all prompts
    Answer answer;
    RequestId id = 0;
    bool has_new_text = false;  // it stands in with_new_text_
  };
  void submit(const std::vector<AcceptedPrompt>& prompts);
  AnswerNeeds needs(const std::vector<AcceptedPrompt>& prompts) const;
  void open(const AnswerNeeds& needs);
  /// Bytes that one of so many ranks of this host can take of a device of this kind, if known.
  std::optional<std::int64_t> available_on(DeviceKind kind, int ranks) const;
  /// The same of the host.
  std::optional<std::int64_t> available(int ranks) const;
  std::optional<std::int64_t> least_available();
  void touch(Own& own);
  void step();
  /// The ranks of one copy of the model agree on `error`; if there are others, which must hear of
  /// it, throws it as an error of this rank alone.
  void tell_other_copies(const AgreedError& error) const;
  std::vector<AnswerUpdate> updates();
  void report(const std::string& message);
  void report_cache() const;
  void print_totals();
  void print_memory();
  template <typename... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    say_text(fmt::format(format, std::forward<Arguments>(arguments)...));
  }
  void say_text(const std::string& text) const;

  /// say_line(), once a job.
  void tell(const std::string& line) const;

  const GenerateFlags& flags_;
  Interrupts& interrupts_;
  RunPhases phases_;
  const DeviceKind device_kind_;
  const int threads_;
  std::unique_ptr<Device> device_;  // of several ranks
  AnswerRanks ranks_;
  std::string folder_;
  PromptEncoder encoder_;
  AnswerPrinter printer_;
  std::unique_ptr<AnswerPlan> plan_;      // of open()
  std::unique_ptr<AnswerModels> models_;  // likewise
  std::deque<Own> own_;
  std::vector<Own*> with_new_text_;  // those with updates
  bool failed_ = false;
  bool told_end_ = false;    // PromptEncoder::end_note
  bool told_words_ = false;  // PromptEncoder::words_note
  std::int64_t steps_ = 0;   // begun
  double seconds_ = 0;
  std::int64_t prompt_tokens_ = 0;  // of those answered
};

}  // namespace zero
