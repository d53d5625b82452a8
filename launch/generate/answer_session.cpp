// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/answer_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "architecture/decoder_shape.h"
#include "base/error.h"
#include "base/printable.h"
#include "inference/drafter.h"
#include "inference/generator.h"
#include "inference/inference_model.h"
#include "launch/generate/generate_device.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/model_memory.h"
#include "launch/rendezvous/cgroup.h"
#include "weights/hf/config.h"

namespace zero {
namespace {

using Clock = std::chrono::steady_clock;

// 0, as many as all requests can need, if that is no more.
std::int64_t useful_cache_tokens(std::int64_t tokens, const InferenceOptions& options) {
  return tokens < options.requests * options.request_tokens ? tokens : 0;
}

}  // namespace

SignalWatcher::AfterSignal Interrupts::arrived(int signal) {
  if (signal == SIGUSR1) {
    report_ = true;
    return SignalWatcher::AfterSignal::go_on;
  }
  constexpr auto kOneSignal = std::chrono::milliseconds(200);
  const auto now = Clock::now();
  if (signal_.exchange(signal) == 0) first_ = now;
  return answering_ && now - first_ < kOneSignal ? SignalWatcher::AfterSignal::go_on
                                                 : SignalWatcher::AfterSignal::end;
}

AnswerSession::AnswerSession(const GenerateFlags& flags, Interrupts& interrupts,
                             Communicator& world)
    : flags_(flags),
      interrupts_(interrupts),
      device_kind_(device_kind(flags, world.size())),
      threads_(threads_of(flags, world.local_size())),
      device_(world.size() > 1 ? open_device(device_kind_, threads_) : nullptr),
      ranks_(world, device_.get(), flags.replicate, flags.tensor),
      folder_(find_model_folder(files::disk(), flags.model, sayer())),
      encoder_(folder_, flags.tokenizer),
      printer_(flags.json ? AnswerPrinter::Form::json : AnswerPrinter::Form::text) {}

AnswerSession::~AnswerSession() = default;

std::vector<AcceptedPrompt> AnswerSession::accept(std::vector<Prompt> prompts) {
  std::vector<AcceptedPrompt> all;
  for (Prompt& prompt : prompts) {
    auto* const text = std::get_if<std::string>(&prompt.content);
    if (flags_.chat && text != nullptr && !prompt.settings.special) {
      prompt.content = Prompt::Messages{{"user", *text}};
    }
    try {
      all.push_back({encoder_.request(prompt), prompt.settings.stop, prompt.where, prompt.number});
      const std::string note = encoder_.end_note(all.back().request);
      if (!note.empty() && !std::exchange(told_end_, true)) say("zero_generate: {}\n", note);
      if (flags_.print_ids && !flags_.json) {
        say("{}: ids {}\n", prompt.where, fmt::join(all.back().request.prompt, ","));
      }
    } catch (const Error& error) {
      refuse(prompt.number, error.what());
    }
  }
  return all;
}

PromptSettings AnswerSession::usual_settings() const {
  PromptSettings settings = flags_.settings;
  const ModelSampling model = read_model_sampling(folder_);
  for (const std::string& line : model.lines()) say("zero_generate: {}\n", line);
  model.choice.apply_to(settings.sampling);
  flags_.sampling.apply_to(settings.sampling);
  settings.usual_tokens = model.max_tokens.value_or(settings.usual_tokens);
  try {
    validate(settings.sampling, model.file);
  } catch (const Error& error) {
    fail("{}; give the flag, which counts before the file", error.what());
  }
  return settings;
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
                           .weights = weight_format(flags_, folder_),
                           .cache = cache_format_from_name(flags_.cache_dtype),
                           .requests = requests,
                           .request_tokens = request_tokens,
                           .host_tokens = flags_.host_cache_tokens};
  options.logit_rows = std::min(requests * (1 + guessed), InferenceOptions::kMostRows);
  options.rows = std::max(options.rows, options.logit_rows);
  if (flags_.cache_tokens > 0) {
    ZERO_CHECK(flags_.cache_tokens >= request_tokens,
               "--cache-tokens is {}; expected at least {}, for the longest prompt with its answer",
               flags_.cache_tokens, request_tokens);
    options.cache_tokens = useful_cache_tokens(flags_.cache_tokens, options);
    if (flags_.cache_tokens > requests * request_tokens) {
      say("zero_generate: --cache-tokens {}: the cache has {}, all that {} requests of {} tokens "
          "can need\n",
          flags_.cache_tokens, requests * request_tokens, requests, request_tokens);
    }
  }
  return options;
}

// Of a model that guesses.
InferenceOptions AnswerSession::draft_options(const InferenceOptions& options,
                                              const std::string& folder) const {
  const DecoderShape guessing = read_hf_model(folder).shape;
  const std::int64_t vocabulary = read_hf_model(folder_).shape.vocabulary;
  ZERO_CHECK(guessing.vocabulary == vocabulary,
             "--draft {}: has a vocabulary of {} tokens; expected the model's {}", flags_.draft,
             guessing.vocabulary, vocabulary);
  InferenceOptions draft = options;
  draft.weights = weight_format(flags_, folder);
  draft.logit_rows = options.requests;
  draft.request_tokens = std::min(draft.request_tokens, guessing.context);
  draft.host_tokens = 0;  // it reads again at little cost
  draft.cache_tokens = useful_cache_tokens(draft.cache_tokens, draft);
  return draft;
}

void AnswerSession::open(std::int64_t requests, std::int64_t request_tokens) {
  const PlannedRanks planned_ranks{ranks_.shape(), threads_, device_kind_};
  const InferenceOptions options = this->options(requests, request_tokens);
  const PlannedModel model = plan_model(folder_, options, planned_ranks);
  std::int64_t host_bytes = model.host_bytes;
  BytesByClass reserve = model.reserve;
  say("{}", model.line);
  const bool guesses = !flags_.draft.empty() && flags_.draft != "prompt";
  std::string draft_folder;
  InferenceOptions draft;
  if (guesses) {
    draft_folder = find_model_folder(files::disk(), flags_.draft, sayer(), "--draft");
    draft = draft_options(options, draft_folder);
    const PlannedModel guessing =
        plan_model(draft_folder, draft, {.threads = threads_, .device = device_kind_});
    host_bytes += guessing.host_bytes;
    for (std::size_t i = 0; i < reserve.size(); ++i) reserve[i] += guessing.reserve[i];
    say("draft: {}", guessing.line);
  }
  std::optional<std::int64_t> available = available_memory();
  if (available) *available /= ranks_.on_this_host();
  check_memory(host_bytes, available, folder_, options, planned_ranks);
  ranks_.any(false);  // all have looked before one takes memory
  if (device_ == nullptr) device_ = open_device(device_kind_, threads_, reserve);
  model_ = open_inference_model(*device_, folder_, options, ranks_.mesh());
  if (guesses) {
    draft_model_ = open_inference_model(*device_, draft_folder, draft);
    drafter_ = std::make_unique<ModelDrafter>(*draft_model_);
  } else if (!flags_.draft.empty()) {
    drafter_ = std::make_unique<NgramDrafter>();
  }
  generator_ = std::make_unique<Generator>(
      *model_, GeneratorOptions{.drafter = drafter_.get(), .draft_tokens = flags_.draft_tokens});
}

// Those that this rank computes.
void AnswerSession::submit(const std::vector<AcceptedPrompt>& prompts) {
  own_.clear();
  with_new_text_.clear();
  for (std::size_t number = 0; number < prompts.size(); ++number) {
    if (!ranks_.computes(number)) continue;
    const AcceptedPrompt& prompt = prompts[number];
    Own& own = own_.emplace_back(number, Answer({prompt.number, prompt.request.prompt, prompt.stop,
                                                 encoder_.tokenizer(), flags_.print_ids}));
    own.id = generator_->submit(prompt.request, {.on_token =
                                                     [this, &own](const GeneratedToken& token) {
                                                       touch(own);
                                                       return own.answer.push(token);
                                                     },
                                                 .on_end =
                                                     [this, &own](const GenerationEnd& end) {
                                                       touch(own);
                                                       own.answer.end(end);
                                                     }});
  }
}

void AnswerSession::touch(Own& own) {
  if (!std::exchange(own.has_new_text, true)) with_new_text_.push_back(&own);
}

// One pass of the model, in which all ranks take part.
void AnswerSession::step() {
  if (generator_->step()) {
    // The other ranks cannot go on without this one.
    ZERO_CHECK(ranks_.count() == 1 || generator_->pass_error().empty(), "{}",
               generator_->pass_error());
  } else if (ranks_.count() > 1) {
    model_->forward({});
  } else if (!generator_->idle()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a batch waits to be full
  }
}

std::vector<AnswerUpdate> AnswerSession::updates() {
  std::vector<AnswerUpdate> all;
  for (Own* const each : std::exchange(with_new_text_, {})) {
    Own& own = *each;
    own.has_new_text = false;
    if (!ranks_.speaks()) continue;
    AnswerUpdate update{.answer = own.number, .text = own.answer.take_text()};
    if (const auto& end = own.answer.ended()) {
      update.end = {end->reason, end->error,
                    flags_.json ? own.answer.json(flags_.log_probabilities) : "",
                    own.answer.tokens(), end->first_token};
    }
    all.push_back(std::move(update));
  }
  return all;
}

// Each step all ranks ask whether one has work left and whether one has been told to end, so that
// they take part in the same passes.
void AnswerSession::answer(const std::vector<AcceptedPrompt>& prompts) {
  interrupts_.answering(true);
  const auto begin = Clock::now();
  submit(prompts);
  printer_.begin(prompts.size());
  for (bool cancelled = false; ranks_.any(!generator_->idle());) {
    if (!cancelled && ranks_.any(interrupts_.signal() != 0)) {
      cancelled = true;
      for (const Own& own : own_) generator_->cancel(own.id);
    }
    step();
    if (ranks_.count() == 1) {
      printer_.apply(updates());
    } else {
      for (const std::string& of_rank : ranks_.gather(encoded(updates()))) {
        if (ranks_.first()) printer_.apply(decoded_updates(of_rank));
      }
    }
    if (ranks_.first() && interrupts_.take_report()) report_cache();
  }
  seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  interrupts_.answering(false);
  for (const auto& [answer, error] : printer_.failures()) {
    report(fmt::format("{}: {}", prompts[answer].where, error));
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (printer_.answered(i)) prompt_tokens_ += std::ssize(prompts[i].request.prompt);
  }
}

// What the ranks' caches and guesses saved, together.
void AnswerSession::print_totals() {
  if (model_ == nullptr) return;
  const Generator::DraftStats drafts = generator_->draft_stats();
  const KeyValueCache::Usage usage = model_->cache().usage();
  std::array<std::int64_t, 6> sums{};
  nlohmann::json mine = sums;
  if (ranks_.speaks()) {
    mine = {drafts.proposed, drafts.accepted, usage.reused, generator_->scheduler().preemptions(),
            usage.moved_out, usage.moved_back};
  }
  for (const std::string& of_rank : ranks_.gather(mine.dump())) {
    const auto numbers = nlohmann::json::parse(of_rank).get<decltype(sums)>();
    std::ranges::transform(sums, numbers, sums.begin(), std::plus());
  }
  const auto [proposed, accepted, reused, preemptions, moved_out, moved_back] = sums;
  if (printer_.totals().tokens == 0) return;
  if (proposed > 0) {
    say("{} of {} guessed tokens were right ({:.0f} %)\n", accepted, proposed,
        100.0 * static_cast<double>(accepted) / static_cast<double>(proposed));
  }
  if (!drafts.error.empty()) say("guessing ended: {}\n", drafts.error);
  if (reused > 0 || preemptions > 0) {
    say("{} tokens were found in the cache, {} requests were preempted\n", reused, preemptions);
  }
  if (moved_out > 0) {
    say("{} cache blocks moved to host memory, {} moved back\n", moved_out, moved_back);
  }
  if (ranks_.count() > 1) {
    const double exposed = model_->exposed_seconds().total;
    say("the first of {} ranks waited {:.2f} s for others and their weights ({:.0f} %)\n",
        ranks_.count(), exposed, 100 * exposed / seconds_);
  }
}

int AnswerSession::finish() {
  const AnswerPrinter::Totals& totals = printer_.totals();
  if (totals.tokens > 0) {
    say("{} tokens in {:.1f} s ({:.1f} tokens/s), first token after {:.2f} s{}\n", totals.tokens,
        seconds_, static_cast<double>(totals.tokens) / seconds_, totals.first_token,
        totals.answers == 1
            ? fmt::format(" ({} tokens of the prompt: {:.1f} tokens/s)", prompt_tokens_,
                          static_cast<double>(prompt_tokens_) / totals.first_token)
            : fmt::format(" ({} prompts, {} tokens of them in all)", totals.answers,
                          prompt_tokens_));
  }
  print_totals();
  int signal = 0;  // of any rank
  for (const std::string& of_rank : ranks_.gather(std::to_string(interrupts_.signal()))) {
    signal = std::max(signal, std::stoi(of_rank));
  }
  return std::stoi(ranks_.share(std::to_string(signal != 0 ? 128 + signal : failed_ ? 1 : 0)));
}

void AnswerSession::report(const std::string& message) {
  say("zero_generate: {}\n", printable_text(message));
  failed_ = true;
}

void AnswerSession::report_cache() const {
  const KeyValueCache::Usage usage = model_->cache().usage();
  const Scheduler& scheduler = generator_->scheduler();
  say("{} requests run, {} wait; {} of {} cache blocks hold their {} tokens, {} hold what may come "
      "again; {} preemptions\n",
      scheduler.running(), scheduler.waiting(), usage.used, usage.total, usage.tokens, usage.cached,
      scheduler.preemptions());
  if (usage.host_total == 0) return;
  say("{} of {} host blocks are used; {} moved there, {} moved back\n", usage.host_used,
      usage.host_total, usage.moved_out, usage.moved_back);
}

}  // namespace zero
