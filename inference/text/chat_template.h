// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "inference/text/tokenizer_config.h"

namespace zero {

struct ChatMessage {
  std::string role;  ///< "system" (the first only), "user" or "assistant"
  std::string content;
};

/// The prompt that asks a model for the assistant's next message, for Tokenizer::encode_pieces: the
/// contents of messages are pieces of their own, so special tokens written in them stay text.
/// `date` is today's, as "26 Jul 2024", for templates that ask for it. No Jinja is run: the model's
/// chat template is recognised as one of a family and written as that family's are: ChatML (with
/// the system message that a template such as Qwen2's has by default), Llama 3 (3.1 and later with
/// the date), Llama 2, Mistral's [INST]. Tools are not known. Throws zero::Error naming the file if
/// the template is missing or of no known family, and naming the message that the template would
/// refuse.
std::vector<PromptPiece> render_chat(const TokenizerConfig& config,
                                     std::span<const ChatMessage> messages,
                                     const std::string& date);

}  // namespace zero
