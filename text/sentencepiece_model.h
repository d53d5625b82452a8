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
/// the library trusts: the maps of its normalizers (text/charsmap.h), and lengths,
/// numbers and nesting of its pieces. Keeps the parts of the model that encode text; self-tests,
/// whose texts the library prints, and extensions are left out. Throws zero::Error naming file and
/// field.
SentencePieceModel check_sentencepiece_model(const std::string& path, std::string_view model);

/// Whether a tokenizer.model is a vocabulary of tiktoken: lines of a token in base64 and its rank.
bool is_tiktoken(std::string_view model);

}  // namespace zero
