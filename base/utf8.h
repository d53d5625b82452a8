// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// The start of a text as UTF-8 (the Unicode standard's table 3-7).
struct Utf8Start {
  enum class Kind : std::uint8_t { character, invalid, unfinished };
  Kind kind = Kind::unfinished;
  /// Of the character or, if not one, of the longest part that may begin one (at least 1 byte).
  std::size_t bytes = 0;
};

/// Looks at the start of `text`, which is not empty. Unfinished: more bytes could make a character.
Utf8Start utf8_start(std::string_view text);

/// The offset of the first byte that belongs to no character; nothing if `text` is UTF-8.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

/// `text` with U+FFFD for each invalid part, as Python's decode(errors="replace") has it.
std::string replace_invalid_utf8(std::string_view text);

/// The code point of the character `text`, which is UTF-8.
char32_t code_point(std::string_view text);
void append_utf8(std::string& text, char32_t code_point);

inline constexpr std::string_view kReplacementCharacter = "\xef\xbf\xbd";

}  // namespace zero
