// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/data/tokenizer.h"

#include <sentencepiece_processor.h>

#include "base/error.h"

namespace zero {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocabulary() const override { return 256; }
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    for (const std::uint32_t token : tokens) text += static_cast<char>(token);
    return text;
  }
  std::int64_t end_of_document() const override { return -1; }
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) {
    const auto status = processor_.Load(path);
    ZERO_CHECK(status.ok(), "{}: is no SentencePiece model: {}; give \"bytes\" or a .model file",
               path, status.ToString());
  }
  std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    ZERO_CHECK(status.ok(), "SentencePiece cannot encode {} bytes: {}", text.size(),
               status.ToString());
    return {ids.begin(), ids.end()};
  }
  std::string decode(std::span<const std::uint32_t> tokens) const override {
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
    ZERO_CHECK(status.ok(), "SentencePiece cannot decode {} tokens: {}", tokens.size(),
               status.ToString());
    return text;
  }
  std::int64_t end_of_document() const override { return processor_.eos_id(); }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

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

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  return std::make_unique<SentencePieceTokenizer>(name);
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const bool control = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    const std::size_t length = control ? 0 : utf8_length(text);
    if (length == 0) {
      out += '.';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace zero
