// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/tokenizer_files.h"

#include <array>
#include <filesystem>

#include "base/error.h"
#include "checkpoint/hf/config.h"
#include "checkpoint/model_files.h"
#include "inference/text/byte_level.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerating = "generation_config.json";
/// The files of transformers' tokenizers, and its defaults for generating text.
constexpr std::array kPassedOn{"tokenizer.json",    "tokenizer_config.json",
                               "tokenizer.model",   "special_tokens_map.json",
                               "added_tokens.json", "vocab.json",
                               "merges.txt",        "chat_template.jinja",
                               kGenerating};
/// Those read beside a tokenizer's file that is given by its own name.
constexpr std::array kBeside{"tokenizer_config.json", "special_tokens_map.json",
                             "added_tokens.json", "chat_template.jinja"};

std::string content_of(const fs::path& path, const std::string& key) {
  try {
    return read_model_text(path.string());
  } catch (const Error& error) {
    fail("{}: {} is copied, and cannot be read: {}", key, path.string(), error.what());
  }
}

using Files = std::map<std::string, std::string>;

/// The config.json of weights that began as those in `folder`, empty if in none.
std::string config_text(const TrainConfig& config, const std::string& folder) {
  if (!config.values.text("model.hf").empty()) return carried_config(folder);
  return folder.empty() ? hf_config_text(config.model) : carried_config(folder, config.model);
}

/// The files of a tokenizer as zero_prepare takes it, which puts no <s> before a text.
void add_tokenizer(const std::string& tokenizer, Files& files) {
  constexpr const char* kKey = "data.tokenizer";
  const fs::path path = tokenizer;
  if (files.contains("tokenizer.json") || files.contains("tokenizer.model")) return;
  if (tokenizer == "bytes") {
    files["tokenizer.json"] = byte_tokenizer_json();
    files.try_emplace("tokenizer_config.json",
                      "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n");
  } else if (fs::is_directory(path)) {
    files.merge(tokenizer_files(tokenizer, kKey));
  } else {
    const bool json = path.extension() == ".json";
    files.try_emplace(json ? "tokenizer.json" : "tokenizer.model", content_of(path, kKey));
    for (const char* name : kBeside) {
      const fs::path beside = path.parent_path() / name;
      if (fs::is_regular_file(beside)) files.try_emplace(name, content_of(beside, kKey));
    }
    if (!json) {
      files.try_emplace("tokenizer_config.json",
                        "{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": false}\n");
    }
  }
}

}  // namespace

std::map<std::string, std::string> weight_folder_files(const TrainConfig& config) {
  std::string folder = config.values.text("model.hf");
  const std::string key = folder.empty() ? "run.init" : "model.hf";
  if (folder.empty() && fs::is_directory(config.run.init)) folder = config.run.init;
  Files files{{"config.json", config_text(config, folder)}};
  if (!folder.empty()) {
    Files passed_on = tokenizer_files(folder, key);
    // The data's own tokenizer, beside weights that another model began with.
    if (key == "run.init" && config.values.given("data.tokenizer")) {
      std::erase_if(passed_on, [](const auto& file) { return file.first != kGenerating; });
    }
    files.merge(passed_on);
  }
  if (!config.data.tokenizer.empty()) add_tokenizer(config.data.tokenizer, files);
  return files;
}

std::map<std::string, std::string> tokenizer_files(const std::string& folder,
                                                   const std::string& key) {
  Files files;
  for (const char* name : kPassedOn) {
    const fs::path path = fs::path(folder) / name;
    if (fs::is_regular_file(path)) files.emplace(name, content_of(path, key));
  }
  return files;
}

}  // namespace zero
