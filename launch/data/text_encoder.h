// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace zero {

/// Encodes long texts part by part, to the ids of the whole.
class TextEncoder {
 public:
  /// Of special tokens that are written in texts: they stay words, or are the tokens.
  enum class Special { words, tokens };

  /// `tokenizer`: as make_tokenizer takes it.
  TextEncoder(const std::string& tokenizer, Special special);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Whether every byte is a token, so that a text may be any bytes.
  bool takes_bytes() const { return bytes_; }

  /// The ids of the beginning of a text.
  std::vector<std::uint32_t> begin(std::string_view text) const;
  /// The ids of `text` behind a part that ended at a cut().
  std::vector<std::uint32_t> go_on(std::string_view text) const;
  /// The last place in `text` at which it can be cut: where its two parts, encoded apart, have the
  /// ids of the whole, judged by the lines around. 0: there is none.
  std::size_t cut(std::string_view text) const;

  /// The tokens that the tokenizer's files put before a text, as for a prompt.
  std::vector<std::uint32_t> tokens_before() const;
  /// Names of special tokens, each with its id: "<s> (1)".
  std::string names_of(std::span<const std::uint32_t> ids) const;
  /// Names of special tokens that are written in `text`, but stay words.
  std::vector<std::string> words_like_tokens(std::string_view text) const;

 private:
  bool bytes_;
  Special special_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<std::uint32_t> newline_;  // the ids of "\n" that begins a text
};

/// Throws zero::Error, with what to do, if a file that begins with `bytes` is of a known format
/// that is no text.
void check_is_text(const std::string& path, std::string_view bytes);

/// Why `line` is no JSON object, and what to do, as "; ..." to end a message with; `last`: the file
/// ends with it. Empty: nothing known.
std::string json_line_advice(std::string_view line, bool last);

}  // namespace zero
