// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
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

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  ZERO_CHECK(std::ranges::none_of(stops_, &std::string::empty),
             "a stop string is empty; give each at least one byte, or none");
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return "";
  kept_ += text;
  std::size_t end = std::string::npos;  // of the stop string that is complete first
  std::size_t begin = kept_.size();
  std::size_t safe = kept_.size();
  for (const std::string& stop : stops_) {
    const std::size_t at = kept_.find(stop);
    if (at != std::string::npos) {
      const std::size_t behind = at + stop.size();
      if (behind < end || (behind == end && at < begin)) {
        begin = at;
        end = behind;
      }
    }
    for (std::size_t tail = std::min(stop.size() - 1, kept_.size()); tail > 0; --tail) {
      if (kept_.ends_with(std::string_view(stop).substr(0, tail))) {
        safe = std::min(safe, kept_.size() - tail);
        break;
      }
    }
  }
  stopped_ = end != std::string::npos;
  std::string out = kept_.substr(0, stopped_ ? begin : safe);
  kept_.erase(0, stopped_ ? std::string::npos : safe);
  return out;
}

std::string StopStrings::finish() { return std::exchange(kept_, {}); }

}  // namespace zero
