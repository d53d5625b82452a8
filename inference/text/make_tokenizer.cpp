// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/error.h"
#include "inference/text/bpe_tokenizer.h"
#include "inference/text/sentencepiece_tokenizer.h"
#include "inference/text/tokenizer.h"
#include "inference/text/tokenizer_config.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

TokenTable bytes() {
  TokenTable table;
  for (int byte = 0; byte < 256; ++byte) table.pieces.emplace_back(1, static_cast<char>(byte));
  return table;
}

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer(bytes()) {}

 private:
  void do_encode(std::string_view text, std::span<const ByteRange> /*special*/,
                 std::vector<std::uint32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
};

/// The tokenizer's file in a folder.
fs::path file_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    if (fs::is_regular_file(folder / name)) return folder / name;
  }
  fail("{}: has neither tokenizer.model nor tokenizer.json; give a folder with one of them",
       folder.string());
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
  const fs::path path = fs::is_directory(name) ? file_in(name) : fs::path(name);
  if (path.extension() == ".json") return make_bpe_tokenizer(path.string(), config);
  return make_sentencepiece_tokenizer(path.string(), config);
}

}  // namespace zero
