// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace zero {

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::uint32_t> prompt)
    : tokenizer_(&tokenizer),
      drops_space_(tokenizer.drops_first_space() && std::ranges::all_of(prompt, [&](auto id) {
                     return tokenizer.piece(id).empty();
                   })) {}

std::string TextStream::push(std::uint32_t token) {
  std::string_view piece = tokenizer_->piece(token);
  if (piece.empty()) return "";
  if (std::exchange(drops_space_, false) && piece.starts_with(' ')) piece.remove_prefix(1);
  kept_ += piece;
  std::size_t whole = 0;  // bytes of kept_ that no later byte changes
  while (whole < kept_.size()) {
    const Utf8Start start = utf8_start(std::string_view(kept_).substr(whole));
    if (start.kind == Utf8Start::Kind::unfinished) break;
    whole += start.bytes;
  }
  std::string text = replace_invalid_utf8(std::string_view(kept_).substr(0, whole));
  kept_.erase(0, whole);
  return text;
}

std::string TextStream::finish() { return replace_invalid_utf8(std::exchange(kept_, {})); }

}  // namespace zero
