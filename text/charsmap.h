// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace zero {

/// Checks a `precompiled_charsmap` of SentencePiece, which the library walks without bounds:
///     4 bytes: the trie's length, little-endian | the trie | texts, each ended by a NUL
/// The trie is a double array of 4-byte units whose leaves are offsets of texts. Throws zero::Error
/// beginning with `place` ("FILE: field") unless every unit that a text can lead to lies in the
/// trie, every leaf is a text in UTF-8, and no text has more prefixes in the trie than the library
/// has places for.
void check_charsmap(std::string_view charsmap, const std::string& place);

}  // namespace zero
