// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zero {

/// Converts text to token ids and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::int64_t vocabulary() const = 0;
  virtual std::vector<std::uint32_t> encode(std::string_view text) const = 0;
  virtual std::string decode(std::span<const std::uint32_t> tokens) const = 0;
  /// The end-of-document id, or -1 if there is none.
  virtual std::int64_t end_of_document() const = 0;
};

/// "bytes": one token per byte, vocabulary 256. Any other name: a SentencePiece model file. Throws
/// zero::Error naming the file if it is no such model.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace zero
