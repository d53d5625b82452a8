// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "inference/sampler.h"
#include "text/chat_template.h"

namespace zero {

/// What a prompt may choose for itself.
struct PromptSettings {
  std::int64_t max_tokens = 0;  ///< 0: usual_tokens, fewer if the model's context ends before
  std::int64_t usual_tokens = kUsualTokens;
  Sampling sampling{};
  /// Texts that end the answer before them; one that names a special token ends it at that, too.
  std::vector<std::string> stop{};
  std::int64_t priority = 0;  ///< GenerationRequest::priority
  /// A text is a whole rendered prompt: special tokens written in it act, and none is put before.
  bool special = false;
  /// An object whose fields the chat template sees as variables, such as enable_thinking; for
  /// messages alone.
  nlohmann::json template_values{};

  static constexpr std::int64_t kUsualTokens = 128;
};

/// A prompt as a user gave it.
struct Prompt {
  using Ids = std::vector<std::uint32_t>;
  using Messages = std::vector<ChatMessage>;

  std::string where;        ///< for messages: "prompts.jsonl:3"
  std::int64_t number = 0;  ///< its line in the file, or its number on the command line, from 1
  std::variant<std::string, Ids, Messages> content{};
  PromptSettings settings{};
};

/// Throws zero::Error naming `where`, the setting, found and expected.
void validate(const PromptSettings& settings, std::string_view where);

/// "1,2,3". Throws zero::Error naming `where`.
Prompt::Ids parse_ids(std::string_view text, std::string_view where);

/// One line of a file of prompts: an object with "prompt", "ids" or "messages", and settings, which
/// replace those of `usual`; null counts as absent. Throws zero::Error naming `where`, the key,
/// found and expected.
Prompt parse_prompt(std::string_view line, const PromptSettings& usual, const std::string& where);

/// Takes the number of a prompt that gets no answer, and the reason.
using RefusePrompt = std::function<void(std::int64_t number, const std::string& message)>;

/// The prompts of a file, one a line; empty lines count, and hold none. A line that is not a prompt
/// goes to `refuse`, and the others are read. Throws zero::Error if the file cannot be read.
std::vector<Prompt> read_prompts(const std::string& path, const PromptSettings& usual,
                                 const RefusePrompt& refuse);

}  // namespace zero
