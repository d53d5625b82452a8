// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer_session.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/hf/config.h"
#include "launch/generate/model_memory.h"
#include "launch/rendezvous/cgroup.h"
#include "launch/telemetry/console.h"
#include "model/decoder_shape.h"

namespace zero {
namespace {

using Clock = std::chrono::steady_clock;

/// Standard output, which may be a pipe or a full disk.
void print(const std::string& text) {
  if (text.empty()) return;
  const bool good = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  ZERO_CHECK(good && std::fflush(stdout) == 0, "standard output: cannot write: {}",
             std::strerror(errno));
}

}  // namespace

SignalWatcher::AfterSignal Interrupts::arrived(int signal) {
  if (signal == SIGUSR1) {
    report_ = true;
    return SignalWatcher::AfterSignal::go_on;
  }
  const bool first = signal_.exchange(signal) == 0;
  return first && answering_ ? SignalWatcher::AfterSignal::go_on : SignalWatcher::AfterSignal::end;
}

AnswerSession::AnswerSession(const GenerateFlags& flags, Interrupts& interrupts)
    : flags_(flags),
      interrupts_(interrupts),
      folder_(find_model_folder(files::disk(), flags.model)),
      encoder_(folder_, flags.tokenizer) {}

std::vector<AcceptedPrompt> AnswerSession::accept(std::vector<Prompt> prompts) {
  std::vector<AcceptedPrompt> all;
  for (Prompt& prompt : prompts) {
    auto* const text = std::get_if<std::string>(&prompt.content);
    if (flags_.chat && text != nullptr) prompt.content = Prompt::Messages{{"user", *text}};
    try {
      GenerationRequest request = encoder_.request(prompt);
      Answer::About about{prompt.number, request.prompt, prompt.settings.stop,
                          encoder_.tokenizer()};
      all.push_back({std::move(request), std::move(about), prompt.where});
    } catch (const Error& error) {
      refuse(prompt.number, error.what());
    }
  }
  return all;
}

void AnswerSession::refuse(std::int64_t number, const std::string& message) {
  report(message);
  if (!flags_.json) return;
  const nlohmann::ordered_json line{{"line", number}, {"error", message}};
  print(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

InferenceOptions AnswerSession::options(std::int64_t requests, std::int64_t request_tokens) const {
  const std::int64_t guessed = flags_.draft.empty() ? 0 : flags_.draft_tokens;
  InferenceOptions options{.dtype = dtype_from_name(flags_.dtype),
                           .weights = weight_format_from_name(flags_.weights),
                           .cache = cache_format_from_name(flags_.cache_dtype),
                           .requests = requests,
                           .request_tokens = request_tokens,
                           .block_tokens = flags_.cache == "paged" ? kCacheGroup : 0};
  options.logit_rows = std::min(requests * (1 + guessed), InferenceOptions::kMostRows);
  options.rows = std::max(options.rows, options.logit_rows);
  if (flags_.cache_tokens > 0) {
    options.cache_tokens = std::min(flags_.cache_tokens, requests * request_tokens);
    ZERO_CHECK(options.cache_tokens >= request_tokens,
               "--cache-tokens is {}; expected at least {}, for the longest prompt with its answer",
               flags_.cache_tokens, request_tokens);
  }
  return options;
}

// Of a model that guesses.
InferenceOptions AnswerSession::draft_options(const InferenceOptions& options,
                                              const std::string& folder) const {
  const DecoderShape guessing = decoder_shape(read_hf_config(folder));
  const std::int64_t vocabulary = vocabulary_of(read_hf_config(folder_));
  ZERO_CHECK(guessing.vocabulary == vocabulary,
             "--draft {}: has a vocabulary of {} tokens; expected the model's {}", flags_.draft,
             guessing.vocabulary, vocabulary);
  InferenceOptions draft = options;
  draft.logit_rows = options.requests;
  draft.request_tokens = std::min(draft.request_tokens, guessing.context);
  draft.cache_tokens = std::min(draft.cache_tokens, draft.requests * draft.request_tokens);
  return draft;
}

void AnswerSession::open(std::int64_t requests, std::int64_t request_tokens) {
  const int threads = threads_of(flags_);
  const InferenceOptions options = this->options(requests, request_tokens);
  const PlannedModel model = plan_model(folder_, options, threads);
  std::int64_t bytes = model.bytes;
  print_error("{}", model.line);
  const bool guesses = !flags_.draft.empty() && flags_.draft != "prompt";
  std::string draft_folder;
  InferenceOptions draft;
  if (guesses) {
    draft_folder = find_model_folder(files::disk(), flags_.draft);
    draft = draft_options(options, draft_folder);
    const PlannedModel guessing = plan_model(draft_folder, draft, threads);
    bytes += guessing.bytes;
    print_error("draft: {}", guessing.line);
  }
  check_memory(bytes, available_memory(), folder_, options, threads);
  device_ = cpu::open({.threads = threads});
  model_ = open_inference_model(*device_, folder_, options);
  if (guesses) {
    draft_model_ = open_inference_model(*device_, draft_folder, draft);
    drafter_ = std::make_unique<ModelDrafter>(*draft_model_);
  } else if (!flags_.draft.empty()) {
    drafter_ = std::make_unique<NgramDrafter>();
  }
  generator_ = std::make_unique<Generator>(
      *model_, GeneratorOptions{
                   .batching = flags_.batching == "fixed" ? Batching::fixed : Batching::continuous,
                   .drafter = drafter_.get(),
                   .draft_tokens = flags_.draft_tokens});
}

void AnswerSession::answer(std::vector<AcceptedPrompt> prompts) {
  std::deque<Answer> answers;
  std::vector<RequestId> ids;
  std::vector<std::size_t> ended;  // in this order
  interrupts_.answering(true);
  const auto begin = Clock::now();
  for (AcceptedPrompt& prompt : prompts) {
    Answer& answer = answers.emplace_back(prompt.about);
    const std::size_t index = answers.size() - 1;
    ids.push_back(generator_->submit(
        std::move(prompt.request),
        {.on_token = [&answer](const GeneratedToken& token) { return answer.push(token); },
         .on_end =
             [&answer, &ended, index](const GenerationEnd& end) {
               answer.end(end);
               ended.push_back(index);
             }}));
  }
  Progress progress;
  for (bool cancelled = false; !generator_->idle();) {
    if (interrupts_.signal() != 0 && !std::exchange(cancelled, true)) {
      for (const RequestId id : ids) generator_->cancel(id);
    }
    if (!generator_->step() && !generator_->idle()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a batch waits to be full
    }
    flags_.json ? show_lines(answers, ended, progress) : show_text(answers, progress);
    if (interrupts_.take_report()) report_cache();
  }
  seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  interrupts_.answering(false);
  for (std::size_t i = 0; i < answers.size(); ++i) count(answers[i], prompts[i]);
}

int AnswerSession::finish() const {
  if (tokens_ > 0) {
    print_error("{} tokens in {:.1f} s ({:.1f} tokens/s), first token after {:.2f} s{}\n", tokens_,
                seconds_, static_cast<double>(tokens_) / seconds_, first_token_,
                prompts_ == 1
                    ? fmt::format(" ({} tokens of the prompt: {:.1f} tokens/s)", prompt_tokens_,
                                  static_cast<double>(prompt_tokens_) / first_token_)
                    : fmt::format(" ({} prompts of {} tokens)", prompts_, prompt_tokens_));
    const Generator::Guesses guesses = generator_->guesses();
    if (guesses.read > 0) {
      print_error("{} of {} guessed tokens were right ({:.0f} %)\n", guesses.kept, guesses.read,
                  100.0 * static_cast<double>(guesses.kept) / static_cast<double>(guesses.read));
    }
    const std::int64_t reused = model_->cache().usage().reused;
    const std::int64_t preemptions = generator_->scheduler().preemptions();
    if (reused > 0 || preemptions > 0) {
      print_error("{} tokens were found in the cache, {} requests were preempted\n", reused,
                  preemptions);
    }
  }
  const int signal = interrupts_.signal();
  return signal != 0 ? 128 + signal : failed_ ? 1 : 0;
}

void AnswerSession::report(const std::string& message) {
  print_error("zero_generate: {}\n", printable_text(message));
  failed_ = true;
}

void AnswerSession::report_cache() const {
  const KeyValueCache::Usage usage = model_->cache().usage();
  const Scheduler& scheduler = generator_->scheduler();
  print_error(
      "{} requests run, {} wait; {} of {} cache blocks hold their {} tokens, {} hold what may come "
      "again; {} preemptions\n",
      scheduler.running(), scheduler.waiting(), usage.used, usage.total, usage.tokens, usage.known,
      scheduler.preemptions());
}

// An answer whose turn it is, as it comes; the others wait.
void AnswerSession::show_text(std::deque<Answer>& answers, Progress& progress) {
  for (; progress.next < answers.size(); ++progress.next) {
    Answer& answer = answers[progress.next];
    const std::string text = answer.take_text();
    print(on_terminal() ? printable_text(text) : text);
    if (!answer.ended()) return;
    if (answer.tokens() > 0) print("\n");
  }
}

// Answers that have ended, as one line each.
void AnswerSession::show_lines(const std::deque<Answer>& answers,
                               const std::vector<std::size_t>& ended, Progress& progress) const {
  for (; progress.next < ended.size(); ++progress.next) {
    const Answer& answer = answers[ended[progress.next]];
    const bool failed = answer.ended()->reason == FinishReason::failed;
    if (failed || answer.tokens() > 0) print(answer.json(flags_.log_probabilities) + "\n");
  }
}

void AnswerSession::count(const Answer& answer, const AcceptedPrompt& prompt) {
  if (answer.ended()->reason == FinishReason::failed) {
    report(fmt::format("{}: {}", prompt.where, answer.ended()->error));
  }
  if (answer.tokens() == 0) return;
  const double first = answer.ended()->first_token;
  first_token_ = prompts_ == 0 ? first : std::min(first_token_, first);
  ++prompts_;
  tokens_ += answer.tokens();
  prompt_tokens_ += std::ssize(prompt.about.prompt);
}

}  // namespace zero
