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

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  return std::make_unique<SentencePieceTokenizer>(name);
}

}  // namespace zero
