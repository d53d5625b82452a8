// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/generate/generate_program.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "launch/generate/answer_session.h"
#include "launch/generate/compare.h"
#include "launch/rendezvous/cores.h"

namespace zero {
namespace {

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

std::vector<Prompt> given_prompts(const GenerateFlags& flags, AnswerSession& session) {
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
void answer_people(const GenerateFlags& flags, AnswerSession& session,
                   const Interrupts& interrupts) {
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

int threads_of(const GenerateFlags& flags) {
  int threads = choose_threads(core_facts(1)).threads;
  if (flags.threads != "auto") {
    const char* const end = flags.threads.data() + flags.threads.size();
    const auto [stop, error] = std::from_chars(flags.threads.data(), end, threads);
    ZERO_CHECK(error == std::errc{} && stop == end && threads >= 1 && threads <= 1024,
               "--threads is {}; expected auto, or 1 to 1024", flags.threads);
  }
  return threads;
}

int generate(const GenerateFlags& flags) {
  ::signal(SIGPIPE, SIG_DFL);  // as cat: who reads the answers has seen enough
  if (!flags.compare.empty()) return compare_weights(flags);
  validate(flags.settings, "command line");
  Interrupts interrupts;
  AnswerSession session(flags, interrupts);
  if (asks_people(flags)) {
    answer_people(flags, session, interrupts);
    return session.finish();
  }
  std::vector<AcceptedPrompt> prompts = session.accept(given_prompts(flags, session));
  if (!prompts.empty()) {
    std::int64_t longest = 0;
    for (const AcceptedPrompt& prompt : prompts) {
      longest = std::max(longest, std::ssize(prompt.request.prompt) + prompt.request.max_tokens);
    }
    session.open(std::min(flags.requests, std::ssize(prompts)), longest);
    session.answer(std::move(prompts));
  }
  return session.finish();
}

}  // namespace zero
