// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/model_files.h"
#include "inference/text/unicode.h"

namespace zero {
namespace {

using sentencepiece::SentencePieceProcessor;

/// Fields after the end of a serialized model replace those in it: this is
/// normalizer_spec.add_dummy_prefix = false.
constexpr std::string_view kWithoutPrefix("\x1a\x02\x18\x00", 4);

std::unique_ptr<SentencePieceProcessor> load(const std::string& path, const std::string& model) {
  auto processor = std::make_unique<SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(model);
  ZERO_CHECK(
      status.ok(),
      "{}: is not a SentencePiece model: {}; give \"bytes\", a .model file, a tokenizer.json or "
      "a folder with one of them",
      path, status.ToString());
  return processor;
}

std::string piece_text(const SentencePieceProcessor& processor, int id) {
  const std::string& name = processor.IdToPiece(id);
  if (processor.IsControl(id)) return "";
  if (processor.IsByte(id)) return {static_cast<char>(std::stoi(name.substr(3, 2), nullptr, 16))};
  if (processor.IsUnknown(id))
    return " \u2047 ";  // SentencePiece's own, unless a model has another
  return replaced(name, kSpaceSymbol, " ");
}

/// Whether the model puts a space before a text, and takes it away again.
bool has_prefix(const SentencePieceProcessor& processor) {
  std::vector<std::string> pieces;
  const auto status = processor.Encode("a", &pieces);
  return status.ok() && !pieces.empty() && pieces[0].starts_with(kSpaceSymbol);
}

TokenTable table_of(const SentencePieceProcessor& processor, const TokenizerConfig& config) {
  TokenTable table;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    table.pieces.push_back(piece_text(processor, id));
    if (processor.IsControl(id)) {
      table.special.emplace(processor.IdToPiece(id), static_cast<std::uint32_t>(id));
    }
  }
  for (const AddedToken& token : config.added_tokens) {
    if (token.id >= table.pieces.size()) table.pieces.resize(token.id + 1);
    if (token.special) table.special.emplace(token.content, token.id);
    table.pieces[token.id] = token.special ? "" : token.content;
  }
  if (processor.bos_id() >= 0)
    table.begin_of_text = {static_cast<std::uint32_t>(processor.bos_id())};
  table.end_of_document = processor.eos_id();
  table.drops_first_space = has_prefix(processor);
  apply_config(config, table);
  return table;
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::unique_ptr<SentencePieceProcessor> processor,
                         std::unique_ptr<SentencePieceProcessor> without_prefix,
                         const TokenizerConfig& config)
      : Tokenizer(table_of(*processor, config)),
        processor_(std::move(processor)),
        without_prefix_(std::move(without_prefix)) {
    for (const auto& [name, id] : table().special) {
      added_.add({.content = name, .id = id, .special = true});
    }
    for (const AddedToken& token : config.added_tokens) added_.add(token);
  }

 private:
  void do_encode(std::string_view raw, std::span<const ByteRange> special,
                 std::vector<std::uint32_t>& ids) const override {
    const std::string text = replace_invalid_utf8(raw);
    for (const TextPart& part : added_.split(text, special)) {
      if (part.token) {
        ids.push_back(*part.token);
        continue;
      }
      const bool first = part.text.data() == text.data();
      const SentencePieceProcessor& processor =
          first || without_prefix_ == nullptr ? *processor_ : *without_prefix_;
      std::vector<int> tokens;
      const auto status = processor.Encode(part.text, &tokens);
      ZERO_CHECK(status.ok(), "SentencePiece cannot encode {} bytes: {}", part.text.size(),
                 status.ToString());
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    }
  }

  std::unique_ptr<SentencePieceProcessor> processor_;
  std::unique_ptr<SentencePieceProcessor> without_prefix_;  // after an added token; may be null
  AddedTokens added_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& path,
                                                        const TokenizerConfig& config) {
  const std::string model = read_model_text(path);
  std::unique_ptr<SentencePieceProcessor> without_prefix;
  if (!config.legacy) without_prefix = load(path, model + std::string(kWithoutPrefix));
  return std::make_unique<SentencePieceTokenizer>(load(path, model), std::move(without_prefix),
                                                  config);
}

}  // namespace zero
