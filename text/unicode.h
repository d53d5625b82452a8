// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zero {

// Texts here are UTF-8.

/// Whether `text` begins, or ends, with a character of words: a letter, mark, digit, joiner or
/// connecting punctuation.
bool begins_with_word(std::string_view text);
bool ends_with_word(std::string_view text);
/// Bytes of white space at the beginning, or the end, of `text`.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);
/// Bytes of all white space in `text`.
std::size_t bytes_of_space(std::string_view text);
/// `text` without that at its ends.
std::string_view trimmed(std::string_view text);

/// `text` with `to` in place of each `from`, which is not empty.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);
/// How tokens of SentencePiece and its kin write a space: U+2581.
inline constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";

/// The normalization form NFC of `text`, which is UTF-8.
std::string composed(std::string_view text);

}  // namespace zero
