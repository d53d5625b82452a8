// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "launch/generate/answer.h"
#include "launch/generate/prompt.h"

namespace zero {

/// The arguments of zero_generate.
struct GenerateFlags {
  std::string model{};
  std::vector<std::string> prompts{};
  std::vector<std::string> prompt_ids{};
  std::string file{};
  std::string compare{};  ///< a text by which formats of weights are compared, instead of prompts
  bool chat = false;      ///< texts are a user's messages
  std::string tokenizer{};
  PromptSettings settings{};
  std::string device = "auto";  ///< "cpu", "cuda" or "auto"
  std::string dtype = "fp32";
  std::string weights = "dtype";
  std::int64_t requests = 8;    ///< at once
  std::int64_t context = 8192;  ///< of a prompt typed at a terminal, with its answer, at most
  std::string threads = "auto";
  LogProbabilities log_probabilities = LogProbabilities::left_out;
  bool json = false;
};

/// Prints to standard error; one that is full or closed changes no answer.
template <typename... Arguments>
void print_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), stderr);
}

/// Answers all prompts, or those of standard input if there is none, on standard output. Errors of
/// single prompts and a line about the speed go to standard error. Returns the exit status: 0; 1 if
/// a prompt was refused or an answer failed; 128 + the signal if SIGINT or SIGTERM cut it short.
/// Throws zero::Error if nothing can be answered. Call once in a process, before it has threads.
int generate(const GenerateFlags& flags);

}  // namespace zero
