// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// A model that the library may read.
struct SentencePieceModel {
  std::string bytes;             ///< serialized
  bool maps_characters = false;  ///< its normalizer has a map
  bool drops_spaces = true;      ///< its normalizer makes one space of several
  std::size_t longest_piece = 0;
  std::vector<std::string> user_defined{};  ///< pieces that the library finds in any text
};

/// Checks the serialized ModelProto `model` of SentencePiece, of the file named `path`, for what
/// the library trusts: the maps of its normalizers, and lengths, numbers and nesting of its pieces.
/// Keeps the parts of the model that encode text; self-tests, whose texts the library prints, and
/// extensions are left out. Throws zero::Error naming file and field.
SentencePieceModel check_sentencepiece_model(const std::string& path, std::string_view model);

/// Whether a tokenizer.model is a vocabulary of tiktoken: lines of a token in base64 and its rank.
bool is_tiktoken(std::string_view model);

/// Checks a `precompiled_charsmap` of SentencePiece, which the library walks without bounds:
///     4 bytes: the trie's length, little-endian | the trie | texts, each ended by a NUL
/// The trie is a double array of 4-byte units whose leaves are offsets of texts. Throws zero::Error
/// beginning with `place` ("FILE: field") unless every unit that a text can lead to lies in the
/// trie, every leaf is a text in UTF-8, and no text has more prefixes in the trie than the library
/// has places for.
void check_charsmap(std::string_view charsmap, const std::string& place);

}  // namespace zero
