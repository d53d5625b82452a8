// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/error.h"
#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "weights/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

TokenTable bytes() {
  TokenTable table;
  for (int byte = 0; byte < 256; ++byte) table.pieces.emplace_back(1, static_cast<char>(byte));
  table.most_bytes_of_token = 1;
  return table;
}

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer(bytes()) {}

 private:
  void do_encode(std::string_view text, const TokenPlaces& /*places*/,
                 std::vector<std::uint32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
};

bool is_json(const fs::path& path) { return path.extension() == ".json"; }

std::unique_ptr<Tokenizer> of_file(const fs::path& path, TokenizerConfig config) {
  if (is_json(path)) return make_bpe_tokenizer(path.string(), config);
  if (config.added_tokens.empty()) {
    config.added_tokens = read_added_tokens_of_json(path.parent_path() / "tokenizer.json");
  }
  return make_sentencepiece_tokenizer(path.string(), config);
}

/// As transformers, which reads tokenizer.model only if there is no tokenizer.json; here also if
/// that asks for something that is not computed.
std::unique_ptr<Tokenizer> of_folder(const fs::path& folder, const TokenizerConfig& config) {
  const fs::path json = folder / "tokenizer.json";
  const fs::path model = folder / "tokenizer.model";
  const bool has_model = fs::is_regular_file(model);
  if (!fs::is_regular_file(json)) {
    ZERO_CHECK(has_model,
               "{}: has neither tokenizer.model nor tokenizer.json; give a folder with one of them",
               folder.string());
    return of_file(model, config);
  }
  const std::string text = read_model_text(json.string());  // damage is no reason to take the other
  try {
    return make_bpe_tokenizer(json.string(), text, config);
  } catch (const Error&) {
    if (!has_model || is_tiktoken(read_model_text(model.string()))) throw;
    return of_file(model, config);
  }
}

}  // namespace

std::string tokenizer_folder(const std::string& name) {
  return fs::is_directory(name) ? name : fs::path(name).parent_path().string();
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  return make_tokenizer(name, read_tokenizer_config(tokenizer_folder(name)));
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, const TokenizerConfig& config) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  return fs::is_directory(name) ? of_folder(name, config) : of_file(name, config);
}

}  // namespace zero
