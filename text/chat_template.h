// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer_config.h"

namespace zero {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant", or others that the template knows
  std::string content;
};

/// The prompt that asks a model for the assistant's next message, for Tokenizer::encode_pieces:
/// what transformers' apply_chat_template writes with add_generation_prompt, no tools and no
/// documents, and with `values`, an object or null, as further variables of the template, none of
/// which is there already, as the special tokens are. The
/// contents of messages are pieces of their own, whatever the template does to them, so special
/// tokens written in them stay text; an empty one is a piece without a byte. `now` is for templates
/// that ask for the date. Throws zero::Error naming the file and line if the template is missing,
/// is not known (docs: text/jinja/syntax.h) or refuses the messages, then with its own words.
std::vector<PromptPiece> render_chat(const TokenizerConfig& config,
                                     std::span<const ChatMessage> messages, const std::tm& now,
                                     const nlohmann::json& values = {});

}  // namespace zero
