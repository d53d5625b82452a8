// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <utility>

#include "base/utf8.h"
#include "text/unicode.h"

namespace zero {

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text,
                                             const EncodeOptions& options) const {
  std::vector<std::uint32_t> ids;
  if (options.begin_of_text) ids = table_.begin_of_text;
  if (!text.empty()) do_encode(text, {}, ids);
  return ids;
}

std::vector<std::uint32_t> Tokenizer::encode_pieces(std::span<const PromptPiece> pieces) const {
  std::string text;
  std::vector<ByteRange> special;
  bool apart = false;  // a content, also one without a byte, is behind the last of them
  for (const PromptPiece& piece : pieces) {
    const std::size_t begin = text.size();
    text += replace_invalid_utf8(piece.text);
    apart |= !piece.from_template;
    if (!piece.from_template || text.size() == begin) continue;
    if (!std::exchange(apart, false) && !special.empty()) {
      special.back().end = text.size();
    } else {
      special.push_back({begin, text.size()});
    }
  }
  std::vector<std::uint32_t> ids;
  if (!text.empty()) do_encode(text, {special, true}, ids);
  return ids;
}

std::size_t Tokenizer::bytes_of_tokens(std::string_view text) const {
  return table_.drops_spaces ? text.size() - bytes_of_space(text) : text.size();
}

std::string Tokenizer::decode(std::span<const std::uint32_t> tokens) const {
  std::string text;
  for (const std::uint32_t token : tokens) text += piece(token);
  if (drops_first_space() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::string_view Tokenizer::piece(std::uint32_t id) const {
  return id < table_.pieces.size() ? std::string_view(table_.pieces[id]) : std::string_view();
}

std::optional<std::uint32_t> Tokenizer::special_token(std::string_view name) const {
  const auto found = table_.special.find(name);
  if (found == table_.special.end()) return std::nullopt;
  return found->second;
}

std::vector<std::string> Tokenizer::special_in(std::string_view text) const {
  std::vector<std::string> names;
  for (const auto& [name, id] : table_.special) {
    if (!name.empty() && text.find(name) != std::string_view::npos) names.push_back(name);
  }
  return names;
}

}  // namespace zero
