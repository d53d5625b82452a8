// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "text/tokenizer.h"

namespace zero {

/// Turns tokens, one by one, into text to show: whole characters of UTF-8, U+FFFD for what is none.
/// All results together are replace_invalid_utf8(decode(tokens)), and the text goes on behind the
/// prompt's: a space that begins it stays if the prompt has text.
class TextStream {
 public:
  /// `tokenizer` must outlive the stream.
  explicit TextStream(const Tokenizer& tokenizer, std::span<const std::uint32_t> prompt = {});

  /// The text that `token` completes. The bytes of an unfinished character, at most 3, are kept.
  std::string push(std::uint32_t token);
  /// The end of the text: U+FFFD if bytes were kept.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool drops_space_;  // of the next piece
  std::string kept_;
};

}  // namespace zero
