// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_config.h"

namespace zero {

/// What to do where a chat needs what is not computed here.
inline constexpr std::string_view kRenderElsewhere =
    "render the prompt elsewhere and give it with --special (\"special\": true in a file)";

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", or others that the template knows
  std::string content;
  /// If there are any, the content: texts of OpenAI's content parts. A template that loops over
  /// contents sees a list of {"type": "text", "text": ...}; any other, the texts in lines.
  std::vector<std::string> parts{};
};

/// The prompt that asks a model for the assistant's next message, for Tokenizer::encode_pieces:
/// transformers' apply_chat_template writes it with add_generation_prompt, no tools and no
/// documents. `values`, an object or null, are further variables of the template, which reads all
/// of them; none has the name of another variable, such as a special token. The contents of
/// messages are pieces of their own, whatever the template does to them, so special tokens written
/// in them stay text; an empty one is a piece without a byte. Templates that ask for the date get
/// `now`. Throws zero::Error naming the file and line if the template is missing, is not known
/// (docs: text/jinja/syntax.h) or refuses the messages, then with its own words.
std::vector<PromptPiece> render_chat(const TokenizerConfig& config,
                                     std::span<const ChatMessage> messages, const std::tm& now,
                                     const nlohmann::json& values = {});

}  // namespace zero
