// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "text/added_tokens.h"

namespace zero {

/// The tokens to which the files of a tokenizer's folder give a part in texts, by their contents.
struct SpecialNames {
  struct Name {
    std::string content;  ///< never empty
    std::string file{};   ///< that says so, for messages
  };
  std::map<std::string, Name, std::less<>> names{};  ///< by their parts, as "eos_token"
  std::vector<std::string> additional{};             ///< additional_special_tokens
  bool merged = false;                               ///< `additional` has what several lists say

  enum class Kind : std::uint8_t {
    part,        ///< bos_token, eos_token and other usual parts
    named,       ///< another part, as "image_token"
    additional,  ///< of a list
  };
  /// A token as a file describes it, without an id.
  struct Named {
    AddedToken token{};
    std::string file{};
    std::string part{};  ///< or the field that lists it
    Kind kind = Kind::part;
  };
  std::map<std::string, Named, std::less<>> described{};  ///< by their contents
  /// Each once, in the order in which transformers numbers them.
  std::vector<Named> in_order() const;

  /// The content that has this part; empty if none has.
  std::string_view of(std::string_view part) const;
  /// All contents.
  std::vector<std::string> contents() const;
};

/// Those of tokenizer_config.json, whose fields are `config`: bos_token, eos_token, unk_token,
/// sep_token, pad_token, cls_token, mask_token, those in extra_special_tokens and
/// model_specific_special_tokens, and additional_special_tokens, to which a list in
/// extra_special_tokens adds. As in transformers, what special_tokens_map.json in `folder` says
/// counts before them, but only if the config has no added_tokens_decoder. Throws zero::Error
/// naming file, field, found and expected.
SpecialNames read_special_names(const std::string& folder, JsonFields& config);

/// The tokens that a tokenizer's own files list.
struct ListedTokens {
  std::set<std::string> found{};  ///< contents that are found in texts as they are
  /// The id of a content in the model's vocabulary.
  std::function<std::optional<std::uint32_t>(const std::string& content)> id{};
  std::vector<bool> taken{};  ///< by id
};

/// The special tokens that the files beside a tokenizer name without an id, if one of them is
/// neither an eos_token nor another usual part. As transformers does, each gets its id in the
/// vocabulary, or else the next behind all ids. Throws zero::Error naming file, field and token if
/// that leaves a choice: with a gap among the ids, or where the order is not certain.
std::vector<AddedToken> number_unlisted(const SpecialNames& special, const ListedTokens& listed);

}  // namespace zero
