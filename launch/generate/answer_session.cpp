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
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/message_text.h"
#include "base/seconds_since.h"
#include "base/sign_of_life.h"
#include "collectives/agreement.h"
#include "inference/generator.h"
#include "inference/inference_model.h"
#include "launch/generate/answer_models.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/offload_text.h"
#include "launch/telemetry/output.h"
#include "launch/watch/process_faults.h"
#include "launch/watch/run_faults.h"

namespace zero {

namespace {

/// In the order in which they travel.
template <typename Accepted>
auto prompt_fields(Accepted& prompt) {
  auto& request = prompt.request;
  auto& sampling = request.sampling;
  return std::tie(request.prompt, request.max_tokens, request.end_tokens, request.priority,
                  sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                  sampling.repetition_penalty, sampling.seed, prompt.stop, prompt.where,
                  prompt.number);
}

}  // namespace

std::string encoded(const std::vector<AcceptedPrompt>& prompts) {
  auto all = nlohmann::json::array();
  for (const AcceptedPrompt& each : prompts) all.push_back(prompt_fields(each));
  std::string bytes;
  nlohmann::json::to_cbor(all, bytes);
  return bytes;
}

std::vector<AcceptedPrompt> decoded_prompts(std::string_view bytes) {
  std::vector<AcceptedPrompt> prompts;
  for (const nlohmann::json& each : nlohmann::json::from_cbor(bytes)) {
    std::size_t next = 0;
    std::apply([&](auto&... field) { (each.at(next++).get_to(field), ...); },
               prompt_fields(prompts.emplace_back()));
  }
  return prompts;
}

SignalWatcher::AfterSignal Interrupts::arrived(int signal) {
  if (signal == SIGUSR1) {
    report_ = true;
    return SignalWatcher::AfterSignal::go_on;
  }
  if (ranks_ != nullptr && ranks_->takes_over()) return SignalWatcher::AfterSignal::go_on;
  constexpr auto kOneSignal = std::chrono::milliseconds(200);
  const auto now = std::chrono::steady_clock::now();
  const bool is_first = signal_.exchange(signal) == 0;
  if (is_first) first_ = now;
  const auto say_waits = [this] {
    const std::string waits = ranks_ == nullptr ? "" : ranks_->waits();
    if (!waits.empty()) say_line(waits);
  };
  if (answering_ && now - first_ < kOneSignal) {
    if (is_first) say_waits();
    return SignalWatcher::AfterSignal::go_on;
  }
  if (ranks_ != nullptr && ranks_->any()) {
    ranks_->end_by(signal, [&] {
      say_line(signal == SIGINT ? "ended by SIGINT" : "ended by SIGTERM");
      say_waits();
    });
  }
  return SignalWatcher::AfterSignal::end;
}

namespace {

// Until a plan chooses: one tensor rank, whose layout any number of ranks has.
int first_tensor(const GenerateFlags& flags) {
  return flags.plan || flags.tensor == GenerateFlags::kAutoTensor ? 1 : flags.tensor;
}
int first_replicas(const GenerateFlags& flags, int world) {
  return flags.plan ? 1 : replicas_of(flags, world, first_tensor(flags));
}

}  // namespace

AnswerSession::AnswerSession(const GenerateFlags& flags, Interrupts& interrupts,
                             Communicator& world, RunFaults* faults)
    : flags_(flags),
      interrupts_(interrupts),
      phases_(faults == nullptr ? std::vector<PhaseListener*>{}
                                : faults->listeners<PhaseListener>()),
      device_kind_(device_kind(flags, world.size())),
      threads_(threads_of(flags, world.local_size())),
      device_(world.size() > 1 ? open_device(device_kind_, threads_) : nullptr),
      ranks_(world, device_.get(), first_replicas(flags, world.size()), first_tensor(flags),
             faults),
      folder_(find_model_folder(files::disk(), flags.model,
                                [this](const std::string& line) { tell(line); })),
      encoder_(folder_, flags.tokenizer),
      printer_(flags.json ? AnswerPrinter::Form::json : AnswerPrinter::Form::text) {
  if (faults != nullptr && device_) faults->attach_to(*device_);
}

AnswerSession::~AnswerSession() = default;

std::vector<AcceptedPrompt> AnswerSession::accept(std::vector<Prompt> prompts) {
  std::vector<AcceptedPrompt> all;
  for (Prompt& prompt : prompts) {
    give_sign_of_life();
    auto* const text = std::get_if<std::string>(&prompt.content);
    if (flags_.chat && text != nullptr && !prompt.settings.special) {
      prompt.content = Prompt::Messages{{"user", *text}};
    }
    if (std::holds_alternative<Prompt::Messages>(prompt.content) &&
        prompt.settings.template_values.is_null()) {
      prompt.settings.template_values = flags_.template_values;
    }
    try {
      all.push_back({encoder_.request(prompt), prompt.settings.stop, prompt.where, prompt.number});
      const std::string note = encoder_.end_note(all.back().request);
      if (!note.empty() && !std::exchange(told_end_, true)) tell(note);
      const std::string words = told_words_ ? "" : encoder_.words_note(prompt);
      if (!words.empty() && !std::exchange(told_words_, true)) tell(words);
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
  for (const std::string& line : model.lines()) tell(line);
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

// Those that this rank computes.
void AnswerSession::submit(const std::vector<AcceptedPrompt>& prompts) {
  own_.clear();
  with_new_text_.clear();
  for (std::size_t number = 0; number < prompts.size(); ++number) {
    if (!ranks_.computes(number)) continue;
    const AcceptedPrompt& prompt = prompts[number];
    Own& own = own_.emplace_back(number, Answer({prompt.number, prompt.request.prompt, prompt.stop,
                                                 encoder_.tokenizer(), flags_.print_ids}));
    own.id =
        models_->generator().submit(prompt.request, {.on_token =
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

void AnswerSession::tell_other_copies(const AgreedError& error) const {
  if (ranks_.shape().replicate > 1) fail("{}", error.what());
}

// One pass of the model, in which all ranks take part.
void AnswerSession::step() {
  ranks_.set_step(++steps_);
  try {
    if (models_->generator().step()) {
      // The other ranks cannot go on without this one.
      ZERO_CHECK(ranks_.count() == 1 || models_->generator().pass_error().empty(), "{}",
                 models_->generator().pass_error());
    } else if (ranks_.count() > 1) {
      phase("decode");
      models_->model().forward({});
    }
  } catch (const AgreedError& error) {
    tell_other_copies(error);
    throw;
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
  const auto begin = std::chrono::steady_clock::now();
  submit(prompts);
  printer_.begin(prompts.size());
  for (bool cancelled = false; ranks_.any(!models_->generator().idle());) {
    if (!cancelled && ranks_.any(interrupts_.signal() != 0)) {
      cancelled = true;
      for (const Own& own : own_) models_->generator().cancel(own.id);
    }
    step();
    if (ranks_.count() == 1) {
      printer_.apply(updates());
    } else {
      const std::vector<std::string> all = ranks_.gather(encoded(updates()));
      phase("between steps");  // a reader may take its time
      for (const std::string& of_rank : all) {
        if (ranks_.first()) printer_.apply(decoded_updates(of_rank));
      }
    }
    if (ranks_.first() && interrupts_.take_report()) report_cache();
  }
  seconds_ += seconds_since(begin);
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
  if (models_ == nullptr) return;
  const Generator::DraftStats drafts = models_->generator().draft_stats();
  const KeyValueCache::Usage usage = models_->model().cache().usage();
  std::array<std::int64_t, 6> sums{};
  nlohmann::json mine = sums;
  if (ranks_.speaks()) {
    mine = {drafts.proposed, drafts.accepted,
            usage.reused,    models_->generator().scheduler().preemptions(),
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
  print_memory();
  const std::string disk =
      offload_text(models_->model().block_reads(), models_->model().pass_times(),
                   ranks_.count() > 1 ? " of the first rank" : "");
  if (!disk.empty()) say("{}\n", disk);
  if (ranks_.count() > 1) {
    const double exposed = models_->model().exposed_seconds().total;
    say("the first of {} ranks waited {:.2f} s for others and their weights ({:.0f} %)\n",
        ranks_.count(), exposed, 100 * exposed / seconds_);
  }
}

int AnswerSession::finish() {
  phase("end");
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

void AnswerSession::say_text(const std::string& text) const {
  if (ranks_.first()) print_to_stderr(text);
}

void AnswerSession::tell(const std::string& line) const {
  if (ranks_.first()) say_line(line);
}

void AnswerSession::report(const std::string& message) {
  tell(printable_text(message));
  failed_ = true;
}

void AnswerSession::report_cache() const {
  const KeyValueCache::Usage usage = models_->model().cache().usage();
  const Scheduler& scheduler = models_->generator().scheduler();
  say("{} requests run, {} wait; {} of {} cache blocks hold their {} tokens, {} hold what may come "
      "again; {} preemptions\n",
      scheduler.running(), scheduler.waiting(), usage.used, usage.total, usage.tokens, usage.cached,
      scheduler.preemptions());
  if (usage.host_total == 0) return;
  say("{} of {} host blocks are used; {} moved there, {} moved back\n", usage.host_used,
      usage.host_total, usage.moved_out, usage.moved_back);
}

}  // namespace zero
