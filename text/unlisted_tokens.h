// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/special_names.h"

namespace zero {

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
