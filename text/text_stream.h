// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace zero {

/// Turns tokens, one by one, into text to show: whole characters of UTF-8, U+FFFD for bytes that
/// are none. All results together are replace_invalid_utf8(decode(tokens)), and the text goes on
/// behind the prompt's: a space that begins it stays if the prompt has text.
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

/// Ends a text before the stop string that is complete first, however the text is cut into pushes.
/// Of several that end at one place, the longest counts.
class StopStrings {
 public:
  /// Throws zero::Error if one of `stops` is empty.
  explicit StopStrings(std::vector<std::string> stops);

  /// The text that is safe to show. What may begin a stop string is kept: at most the length of
  /// the longest less one byte. Nothing once stopped.
  std::string push(std::string_view text);
  bool stopped() const { return stopped_; }
  /// The end of a text that does not go on: what was kept.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string kept_;
  bool stopped_ = false;
};

}  // namespace zero
