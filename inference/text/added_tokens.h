// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/hf/fields.h"
#include "inference/text/tokenizer.h"

namespace zero {

/// Ids of tokens are below: a file that names a larger one is refused.
inline constexpr std::uint32_t kMostTokens = 1U << 20U;

/// A token that is found in the text before pre-tokenization.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool special = false;
  bool normalized = false;   ///< found in the normalized text
  bool left_space = false;   ///< takes white space before it along
  bool right_space = false;  ///< takes white space behind it along
  bool single_word = false;  ///< not within a word
};

/// Reads content, special, normalized, lstrip, rstrip and single_word.
AddedToken read_added_token(HfFields& fields, std::uint32_t id);

/// A part of a text: an added token, or text between.
struct TextPart {
  std::string_view text;
  std::optional<std::uint32_t> token{};
};

/// Finds the longest of some added tokens at each place, from left to right.
class AddedTokens {
 public:
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  /// Cuts `text`, which is UTF-8. Special tokens that do not lie within one of the ranges `special`
  /// stay text.
  std::vector<TextPart> split(std::string_view text, std::span<const ByteRange> special) const;

 private:
  const AddedToken* match(std::string_view text) const;

  std::unordered_map<std::string, AddedToken> tokens_;
  std::map<char, std::set<std::size_t, std::greater<>>> lengths_;  ///< by first byte
};

}  // namespace zero
