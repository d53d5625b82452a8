// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/merges.h"
#include "text/split_pattern.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace zero {

/// The content of a tokenizer.json with a model of byte-pair encoding. Two families are computed:
/// byte-level (GPT-2, Llama 3, Qwen2), whose characters are bytes, and that with `byte_fallback`
/// (Llama 2, Mistral), whose characters are Unicode's with U+2581 for a space, a byte where the
/// vocabulary has no such character.
struct TokenizerJson {
  enum class Space : std::uint8_t {
    none,      ///< byte-level
    first,     ///< one before the text's first part, unless it begins with one
    each,      ///< one before each part between added tokens, unless it begins with one
    prepended  ///< one before each part
  };

  TokenTable table;  ///< pieces, special tokens and the tokens that begin a text
  std::unordered_map<std::string, std::uint32_t> ids{};  ///< by bytes; without added tokens
  Merges merges;
  std::array<std::uint32_t, 256> byte_ids{};
  bool byte_level = true;
  bool nfc = false;              ///< the normalizer composes characters
  bool replaces_spaces = false;  ///< the normalizer writes U+2581 for a space
  bool ignore_merges = false;    ///< a word that is a token is not split
  bool prefix_space = false;     ///< byte-level: a space before each part that begins with none
  Space space = Space::none;
  std::vector<SplitPattern> splits{};  ///< one after the other
  AddedTokens added;                   ///< found in the text
  AddedTokens added_normalized;        ///< found in the normalized text, and normalized likewise

  /// What the normalizer puts before each part of a text between added tokens.
  std::string_view prepended() const;
  /// What the normalizer makes of a text, without what it prepends.
  std::string normal(std::string_view text) const;
};

/// With the tokens that the files beside it, `config`, add, if neither their contents nor their ids
/// are others'. Throws zero::Error naming file, field, found and expected for a file that is
/// malformed or asks for something else.
TokenizerJson parse_tokenizer_json(const std::string& file, const std::string& text,
                                   const TokenizerConfig& config = {});

}  // namespace zero
