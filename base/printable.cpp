// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

#include <cstddef>

namespace zero {
namespace {

/// Bytes of the UTF-8 sequence at the start of `text`, or 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80                    ? 1
                             : first >= 0xc2 && first < 0xe0 ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0U) != 0x80U) return 0;
  }
  // Some terminals treat C1 controls as commands.
  return length == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0 ? 0 : length;
}

/// `text` with '?' for all that is unsafe, except the control characters in `kept`.
std::string printable(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const bool control = c < 0x20 || c == 0x7f;
    const bool refused = control && kept.find(text[0]) == std::string_view::npos;
    const std::size_t length = refused ? 0 : utf8_length(text);
    if (length == 0) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace

std::string printable_line(std::string_view text) {
  constexpr std::size_t kMost = 1024;
  return printable(text.substr(0, kMost), "") + (text.size() > kMost ? "..." : "");
}

std::string printable_text(std::string_view text) { return printable(text, "\n\t"); }

}  // namespace zero
