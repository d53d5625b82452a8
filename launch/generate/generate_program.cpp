// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/generate_program.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/hf/config.h"
#include "device/device.h"
#include "inference/inference_model.h"
#include "inference/weight_files.h"
#include "launch/generate/compare.h"
#include "launch/generate/generate_device.h"
#include "launch/generate/prompt_encoder.h"
#include "launch/signals.h"
#include "launch/telemetry/console.h"

namespace zero {
namespace {

using Clock = std::chrono::steady_clock;

void complain(const std::string& message) {
  print_error("zero_generate: {}\n", printable_text(message));
}

/// The first signal that asks for an end waits for the pass under way, if answers are coming; any
/// other ends the process at once.
class Interrupts {
 public:
  Interrupts() : watcher_([this](int signal) { return arrived(signal); }) {}
  void answering(bool yes) { answering_ = yes; }
  int signal() const { return signal_; }  ///< 0: none

 private:
  SignalWatcher::AfterSignal arrived(int signal) {
    if (signal == SIGUSR1) return SignalWatcher::AfterSignal::go_on;
    const bool first = signal_.exchange(signal) == 0;
    return first && answering_ ? SignalWatcher::AfterSignal::go_on
                               : SignalWatcher::AfterSignal::end;
  }

  std::atomic<bool> answering_{false};
  std::atomic<int> signal_{0};
  SignalWatcher watcher_;
};

/// Standard output, which may be a pipe or a full disk.
void print(const std::string& text) {
  if (text.empty()) return;
  const bool good = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  ZERO_CHECK(good && std::fflush(stdout) == 0, "standard output: cannot write: {}",
             std::strerror(errno));
}

/// A prompt that can be answered.
struct Accepted {
  GenerationRequest request;
  Answer::About about;
  std::string where;
};

/// Answers prompts and prints the answers.
class Session {
 public:
  Session(const GenerateFlags& flags, Interrupts& interrupts)
      : flags_(flags),
        interrupts_(interrupts),
        folder_(find_model_folder(files::disk(), flags.model)),
        encoder_(folder_, flags.tokenizer) {}

  PromptEncoder& encoder() { return encoder_; }

  /// Complains about those that cannot be answered.
  std::vector<Accepted> accept(std::vector<Prompt> prompts) {
    std::vector<Accepted> all;
    for (Prompt& prompt : prompts) {
      auto* const text = std::get_if<std::string>(&prompt.content);
      if (flags_.chat && text != nullptr) {
        prompt.content = Prompt::Messages{{"user", *text}};
      }
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

  /// Reports a prompt that gets no answer.
  void refuse(std::int64_t number, const std::string& message) {
    report(message);
    if (!flags_.json) return;
    const nlohmann::ordered_json line{{"line", number}, {"error", message}};
    print(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

  /// Opens the model for at most so many tokens a request.
  void open(std::int64_t requests, std::int64_t request_tokens) {
    InferenceOptions options{.dtype = dtype_from_name(flags_.dtype),
                             .weights = weight_format_from_name(flags_.weights),
                             .requests = requests,
                             .request_tokens = request_tokens};
    options.rows = std::max(options.rows, requests);
    device_ = open_device(flags_, announce(options));
    model_ = open_inference_model(*device_, folder_, options);
    generator_ = std::make_unique<Generator>(*model_);
  }

  /// Answers all, in the order in which they are given.
  void answer(std::vector<Accepted> prompts) {
    std::deque<Answer> answers;
    std::vector<RequestId> ids;
    std::vector<std::size_t> ended;  // in this order
    interrupts_.answering(true);
    const auto begin = Clock::now();
    for (Accepted& prompt : prompts) {
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
      generator_->step();
      flags_.json ? show_lines(answers, ended, progress) : show_text(answers, progress);
    }
    seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    interrupts_.answering(false);
    for (std::size_t i = 0; i < answers.size(); ++i) count(answers[i], prompts[i]);
  }

  /// The line about the speed; the exit status.
  int finish() const {
    if (tokens_ > 0) {
      print_error("{} tokens in {:.1f} s ({:.1f} tokens/s), first token after {:.2f} s{}\n",
                  tokens_, seconds_, static_cast<double>(tokens_) / seconds_, first_token_,
                  prompts_ == 1
                      ? fmt::format(" ({} tokens of the prompt: {:.1f} tokens/s)", prompt_tokens_,
                                    static_cast<double>(prompt_tokens_) / first_token_)
                      : fmt::format(" ({} prompts of {} tokens)", prompts_, prompt_tokens_));
    }
    const int signal = interrupts_.signal();
    return signal != 0 ? 128 + signal : failed_ ? 1 : 0;
  }

 private:
  /// A line about the memory of a model, from a plan that takes none. Returns what a GPU reserves.
  BytesByClass announce(const InferenceOptions& options) const {
    const ModelConfig config = read_hf_config(folder_);
    // A configuration that its files do not fit is refused before anything is as large as it says.
    const WeightFiles fitting(folder_, config);
    const auto device = plan_device(flags_);
    const InferenceModel model(*device, config, options);
    const MemorySnapshot memory = device->ledger().snapshot();
    const std::int64_t cache = memory.labels.at("activations/key_value_cache");
    const auto text = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    print_error(
        "model of {} parameters: weights {}, cache {} requests x {} tokens {}, activations {}\n",
        count_text(std::visit(
            [](const auto& family) { return static_cast<double>(family.parameter_count()); },
            config)),
        text(memory.current_of(MemoryClass::parameters)), options.requests, options.request_tokens,
        text(cache), text(memory.current_of(MemoryClass::activations) - cache));
    return device->device_bytes().arenas;
  }

  void report(const std::string& message) {
    complain(message);
    failed_ = true;
  }

  struct Progress {
    std::size_t next = 0;  // the first that is not shown whole
  };

  /// An answer whose turn it is, as it comes; the others wait.
  static void show_text(std::deque<Answer>& answers, Progress& progress) {
    for (; progress.next < answers.size(); ++progress.next) {
      Answer& answer = answers[progress.next];
      const std::string text = answer.take_text();
      print(on_terminal() ? printable_text(text) : text);
      if (!answer.ended()) return;
      if (answer.tokens() > 0) print("\n");
    }
  }

  /// Answers that have ended, as one line each.
  void show_lines(const std::deque<Answer>& answers, const std::vector<std::size_t>& ended,
                  Progress& progress) const {
    for (; progress.next < ended.size(); ++progress.next) {
      const Answer& answer = answers[ended[progress.next]];
      const bool failed = answer.ended()->reason == FinishReason::failed;
      if (failed || answer.tokens() > 0) print(answer.json(flags_.log_probabilities) + "\n");
    }
  }

  void count(const Answer& answer, const Accepted& prompt) {
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

  const GenerateFlags& flags_;
  Interrupts& interrupts_;
  std::string folder_;
  PromptEncoder encoder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<InferenceModel> model_;
  std::unique_ptr<Generator> generator_;
  bool failed_ = false;
  double seconds_ = 0;
  double first_token_ = 0;  // the earliest
  std::int64_t prompts_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t prompt_tokens_ = 0;
};

bool asks_people(const GenerateFlags& flags) {
  return flags.prompts.empty() && flags.prompt_ids.empty() && flags.file.empty() &&
         ::isatty(STDIN_FILENO) != 0;
}

/// All of standard input, without the line's end that echo puts there.
std::string standard_input() {
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::vector<Prompt> given_prompts(const GenerateFlags& flags, Session& session) {
  const auto refuse = [&](std::int64_t number, const std::string& message) {
    session.refuse(number, message);
  };
  if (!flags.file.empty()) return read_prompts(flags.file, flags.settings, refuse);
  std::vector<Prompt> all;
  std::int64_t number = 0;
  const auto add = [&](std::string where, auto content) {
    all.push_back({.where = std::move(where),
                   .number = number,
                   .content = std::move(content),
                   .settings = flags.settings});
  };
  if (flags.prompts.empty() && flags.prompt_ids.empty()) {
    ++number;
    add("standard input", standard_input());
  }
  for (const std::string& text : flags.prompts) {
    ++number;
    add(fmt::format("--prompt {}", number), text);
  }
  for (const std::string& ids : flags.prompt_ids) {
    ++number;
    const std::string where = fmt::format("--prompt-ids {}", number - std::ssize(flags.prompts));
    try {
      add(where, parse_ids(ids, where));
    } catch (const Error& error) {
      refuse(number, error.what());
    }
  }
  return all;
}

/// A prompt a line, until the input ends.
void answer_people(const GenerateFlags& flags, Session& session, const Interrupts& interrupts) {
  session.encoder().limit_context(flags.context);
  session.open(1, session.encoder().context());
  std::int64_t number = 0;
  const auto show = [&](const char* text) {
    if (!flags.json) print_error("{}", text);
  };
  while (interrupts.signal() == 0) {
    show("> ");
    std::string line;
    if (!std::getline(std::cin, line)) return show("\n");
    if (line.empty()) continue;
    ++number;
    session.answer(session.accept({{.where = fmt::format("prompt {}", number),
                                    .number = number,
                                    .content = line,
                                    .settings = flags.settings}}));
  }
}

}  // namespace

int generate(const GenerateFlags& flags) {
  ::signal(SIGPIPE, SIG_DFL);  // as cat: who reads the answers has seen enough
  if (!flags.compare.empty()) return compare_weights(flags);
  validate(flags.settings, "command line");
  Interrupts interrupts;
  Session session(flags, interrupts);
  if (asks_people(flags)) {
    answer_people(flags, session, interrupts);
    return session.finish();
  }
  std::vector<Accepted> prompts = session.accept(given_prompts(flags, session));
  if (!prompts.empty()) {
    std::int64_t longest = 0;
    for (const Accepted& prompt : prompts) {
      longest = std::max(longest, std::ssize(prompt.request.prompt) + prompt.request.max_tokens);
    }
    session.open(std::min(flags.requests, std::ssize(prompts)), longest);
    session.answer(std::move(prompts));
  }
  return session.finish();
}

}  // namespace zero
