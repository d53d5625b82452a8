// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "inference/generation_request.h"
#include "launch/generate/prompt.h"
#include "text/tokenizer_config.h"

namespace zero {

/// Turns prompts into requests of a model, whose folder it reads; the weights are not needed.
class PromptEncoder {
 public:
  /// `tokenizer`: as for make_tokenizer; empty: that of the folder, if there is one. The chat
  /// template is that beside the tokenizer, and for "bytes" that of the folder. Throws zero::Error
  /// naming the file.
  PromptEncoder(const std::string& folder, const std::string& tokenizer);

  /// One that Generator::submit takes. The answer to messages ends at the tokenizer's eos_token
  /// too: it ends a turn. Throws zero::Error, naming the prompt, found and expected, if the prompt
  /// is empty or becomes no token, has values for a template and is no messages, is not UTF-8, has
  /// a token outside the vocabulary, does not fit the context with its answer, or needs a tokenizer
  /// that is not there.
  GenerationRequest request(const Prompt& prompt) const;

  /// Says that `request` does not end at the tokenizer's eos_token, and what does; empty if it ends
  /// there, or there is none.
  std::string end_note(const GenerationRequest& request) const;

  /// Says which special tokens stay words in a text that is neither messages nor a rendered prompt;
  /// empty if there are none.
  std::string words_note(const Prompt& prompt) const;

  /// The tokens of a text file. Throws zero::Error naming it, or that there is no tokenizer.
  std::vector<std::uint32_t> encode_file(const std::string& path) const;

  /// Null: answers are token ids.
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  /// Tokens of a prompt with its answer, at most.
  std::int64_t context() const { return context_; }
  /// Requests from here on have at most so many tokens, as --context says.
  void limit_context(std::int64_t tokens);

 private:
  /// Whether the tokenizer has an eos_token, and the request does not end there.
  bool passes_end(const GenerationRequest& request) const;
  const Tokenizer& needed_tokenizer(const std::string& where) const;
  Prompt::Ids encode(const Prompt& prompt) const;
  Prompt::Ids encode(const Prompt::Messages& messages, const Prompt& prompt) const;
  Prompt::Ids encode(const std::string& text, const Prompt& prompt) const;
  /// Throws if texts, as `pieces`, have more tokens than the context, however they are encoded.
  void check_size(std::span<const std::string_view> pieces, const std::string& where) const;

  std::string folder_;
  std::int64_t vocabulary_ = 0;
  std::int64_t context_ = 0;
  std::string context_name_ = "the model's context";
  TokenizerConfig config_;  // beside the tokenizer
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::uint32_t> end_tokens_;
  std::tm now_{};  // of the run, for chat templates
};

}  // namespace zero
