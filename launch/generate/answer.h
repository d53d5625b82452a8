// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inference/generation_request.h"
#include "text/text_stream.h"

namespace zero {

enum class LogProbabilities : std::uint8_t { left_out, shown };

/// What a model answers to one prompt, while it comes: tokens, and their text up to a stop string.
class Answer {
 public:
  struct About {
    std::int64_t number = 0;  ///< of the prompt: Prompt::number
    std::vector<std::uint32_t> prompt{};
    std::vector<std::string> stop{};
    const Tokenizer* tokenizer = nullptr;  ///< null: the text is the ids, and stops nowhere
    bool shows_prompt = false;             ///< its ids, in JSON
  };
  /// The tokenizer must outlive the answer.
  explicit Answer(const About& about);

  /// Returns Flow::stop at a stop string.
  Flow push(const GeneratedToken& token);
  void end(const GenerationEnd& end);

  /// The text since the last call.
  std::string take_text() { return std::exchange(shown_next_, ""); }
  /// Set once it has ended.
  const std::optional<GenerationEnd>& ended() const { return ended_; }
  std::int64_t tokens() const { return std::ssize(ids_); }
  /// Of one that has ended: an object in one line. There is no text without a tokenizer.
  std::string json(LogProbabilities log_probabilities) const;

 private:
  void append(const std::string& text);

  std::int64_t number_;
  std::int64_t prompt_tokens_;
  std::vector<std::uint32_t> shown_prompt_;
  std::optional<TextStream> stream_;
  StopStrings stops_;
  std::vector<std::uint32_t> ids_;
  std::vector<float> log_probabilities_;
  std::string text_;
  std::string shown_next_;
  std::optional<GenerationEnd> ended_{};
};

}  // namespace zero
