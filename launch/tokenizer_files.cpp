// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/tokenizer_files.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "checkpoint/hf/config.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

/// The files of transformers' tokenizers, and its defaults for generating text.
constexpr std::array kPassedOn{"tokenizer.json",    "tokenizer_config.json",
                               "tokenizer.model",   "special_tokens_map.json",
                               "added_tokens.json", "vocab.json",
                               "merges.txt",        "generation_config.json"};
constexpr std::uintmax_t kLargest = std::uintmax_t{64} << 20;

std::string content_of(const fs::path& path, const char* key) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  ZERO_CHECK(!error && bytes <= kLargest,
             "{}: {} goes into every checkpoint, and {}; expected a file of at most {} MiB", key,
             path.string(), error ? error.message() : fmt::format("has {} bytes", bytes),
             kLargest >> 20U);
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  ZERO_CHECK(text.size() == bytes, "{}: cannot read {}", key, path.string());
  return text;
}

}  // namespace

std::map<std::string, std::string> weight_folder_files(const TrainConfig& config) {
  std::map<std::string, std::string> files{{"config.json", hf_config_text(config.model)}};
  if (const std::string folder = config.values.text("model.hf"); !folder.empty()) {
    for (const char* name : kPassedOn) {
      const fs::path path = fs::path(folder) / name;
      if (fs::is_regular_file(path)) files[name] = content_of(path, "model.hf");
    }
  }
  const std::string& tokenizer = config.data.tokenizer;
  if (!tokenizer.empty() && tokenizer != "bytes" && !files.contains("tokenizer.model")) {
    files["tokenizer.model"] = content_of(tokenizer, "data.tokenizer");
  }
  return files;
}

}  // namespace zero
