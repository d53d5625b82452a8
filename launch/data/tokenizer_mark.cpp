// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/tokenizer_mark.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace zero {

TokenizerMark mark_of(const Tokenizer& tokenizer) {
  std::string meanings;
  for (std::int64_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const std::string_view piece = tokenizer.piece(static_cast<std::uint32_t>(id));
    meanings += fmt::format("{} {}", piece.size(), piece);
  }
  for (const auto& [name, id] : tokenizer.special_tokens()) {
    meanings += fmt::format("{} {} {}", name.size(), name, id);
  }
  return {.hash = XXH3_64bits(meanings.data(), meanings.size()),
          .vocabulary = tokenizer.vocabulary()};
}

}  // namespace zero
