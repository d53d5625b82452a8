// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tokenizer_files.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_tree.h"
#include "checkpoint/weights.h"
#include "files/file_system.h"
#include "launch/config/train_config.h"
#include "launch/data/batches.h"
#include "launch/data/token_digest.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGenerating = "generation_config.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kTemplate = "chat_template.jinja";
using Files = std::map<std::string, std::string>;

/// The files of transformers' tokenizers, and its defaults for generating text.
constexpr std::array kPassedOn{
    "tokenizer.json",    kTokenizerConfig, "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json",     "merges.txt",      kTemplate,
    kTemplateJson,       kGenerating};
/// Those read beside a tokenizer's file that is given by its own name.
constexpr std::array kBeside{kTokenizerConfig, "special_tokens_map.json", "added_tokens.json",
                             kTemplate, kTemplateJson};

bool is_file(const fs::path& path) {
  return files::disk().kind_of(path.string()) == files::PathKind::file;
}

bool is_folder(const fs::path& path) {
  return files::disk().kind_of(path.string()) == files::PathKind::folder;
}

std::string content_of(const fs::path& path, const std::string& key) {
  try {
    return read_model_text(path.string());
  } catch (const Error& error) {
    fail("{}: {} is copied, and cannot be read: {}", key, path.string(), error.what());
  }
}

/// The templates of additional_chat_templates in `folder`, and of chat_template.jinja, become the
/// list in tokenizer_config.json, in which transformers finds them as in the files: those of a
/// saved model lie in one folder.
void list_templates(const fs::path& folder, const std::string& key, Files& files) {
  const fs::path more = folder / kMoreTemplates;
  const std::vector<std::string> names = template_file_names(more.string());
  if (names.empty()) return;
  std::map<std::string, std::string> templates;
  for (const std::string& name : names) {
    templates[fs::path(name).stem().string()] = content_of(more / name, key);
  }
  if (const auto own = files.extract(kTemplate)) templates.emplace("default", own.mapped());
  std::string& text = files[kTokenizerConfig];
  auto config = parse_ordered_tree(text.empty() ? "{}" : text);
  ZERO_CHECK(config && config->is_object(),
             "{}: {} is no JSON object, so that the chat templates of {} cannot be carried in it; "
             "mend it, or remove that folder",
             key, (folder / kTokenizerConfig).string(), more.string());
  auto& list = (*config)["chat_template"] = nlohmann::ordered_json::array();
  for (const auto& [name, content] : templates) {
    list.push_back({{"name", name}, {"template", content}});
  }
  text = config->dump(2) + "\n";
}

/// The config.json of weights that began as those in `folder`, empty if in none.
std::string config_text(const TrainConfig& config, const std::string& folder) {
  if (!config.values.text("model.hf").empty()) return carried_config(folder);
  return folder.empty() ? hf_config_text(config.model) : carried_config(folder, config.model);
}

/// The folder whose small files come along, and the key that names it; empty: none.
NamedTokenizer first_folder(const TrainConfig& config) {
  if (std::string folder = config.values.text("model.hf"); !folder.empty()) {
    return {"model.hf", std::move(folder)};
  }
  return {"run.init", is_folder(config.run.init) ? config.run.init : ""};
}

/// The files of a tokenizer as zero_prepare takes it.
void add_tokenizer(const std::string& tokenizer, Files& files) {
  constexpr const char* kKey = "data.tokenizer";
  const fs::path path = tokenizer;
  if (tokenizer == "bytes") {
    files["tokenizer.json"] = byte_tokenizer_json();
    files.try_emplace(kTokenizerConfig, "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n");
  } else if (is_folder(path)) {
    files.merge(tokenizer_files(tokenizer, kKey));
  } else {
    const bool json = path.extension() == ".json";
    files.try_emplace(json ? "tokenizer.json" : "tokenizer.model", content_of(path, kKey));
    for (const char* name : kBeside) {
      const fs::path beside = path.parent_path() / name;
      if (is_file(beside)) files.try_emplace(name, content_of(beside, kKey));
    }
    if (!json) {
      files.try_emplace(kTokenizerConfig, "{\"tokenizer_class\": \"LlamaTokenizer\"}\n");
    }
    list_templates(path.parent_path(), kKey, files);
  }
}

}  // namespace

NamedTokenizer saved_tokenizer(const TrainConfig& config) {
  NamedTokenizer of_data{"data.tokenizer", config.data.tokenizer};
  if (!of_data.name.empty() && config.values.given("data.tokenizer")) return of_data;
  NamedTokenizer of_folder = first_folder(config);
  const auto has = [folder = fs::path(of_folder.name)](const char* name) {
    return !folder.empty() && is_file(folder / name);
  };
  return has("tokenizer.json") || has("tokenizer.model") ? of_folder : of_data;
}

std::map<std::string, std::string> weight_folder_files(const TrainConfig& config) {
  const auto [key, folder] = first_folder(config);
  const NamedTokenizer tokenizer = saved_tokenizer(config);
  const bool of_data = tokenizer.key != key && !tokenizer.name.empty();
  Files files{{"config.json", config_text(config, folder)}};
  if (!folder.empty()) {
    Files passed_on = tokenizer_files(folder, key);
    if (of_data && config.values.given(tokenizer.key)) {
      std::erase_if(passed_on, [](const auto& file) { return file.first != kGenerating; });
    }
    files.merge(passed_on);
  }
  if (of_data) add_tokenizer(tokenizer.name, files);
  return files;
}

std::map<std::string, std::string> weight_file_fingerprints(const TrainConfig& config) {
  std::map<std::string, std::string> fingerprints;
  if (!config.checkpoints.used() && !names_folder(config.run.save_weights)) return fingerprints;
  for (const auto& [name, content] : weight_folder_files(config)) {
    fingerprints["weights/" + name] = fmt::format("{} bytes, fingerprint {:016x}", content.size(),
                                                  XXH3_64bits(content.data(), content.size()));
  }
  return fingerprints;
}

std::map<std::string, std::string> tokenizer_files(const std::string& folder,
                                                   const std::string& key) {
  Files files;
  for (const char* name : kPassedOn) {
    const fs::path path = fs::path(folder) / name;
    if (is_file(path)) files.emplace(name, content_of(path, key));
  }
  list_templates(folder, key, files);
  return files;
}

std::string check_data_tokenizer(const TrainConfig& config, const Batches& batches) {
  const std::vector<DataFile> files = batches.files();
  const auto named = [](const DataFile& each) {
    return each.file.digest() != nullptr && each.file.digest()->tokenizer;
  };
  if (std::ranges::none_of(files, named)) return "";
  const auto [key, name] = saved_tokenizer(config);
  if (name.empty()) return "";
  TokenizerMark mark;
  try {
    mark = mark_of(*make_tokenizer(name));
  } catch (const Error& error) {
    if (key == "data.tokenizer") fail("{}: {}", key, error.what());
    // A model's may be passed on without being computed.
    return fmt::format(
        "{}: its tokenizer is not compared with the data's tokenizer, because it cannot be "
        "computed here: {}",
        key, error.what());
  }
  for (const DataFile& each : files) {
    if (!named(each)) continue;
    const TokenizerMark& made = *each.file.digest()->tokenizer;
    ZERO_CHECK(made == mark,
               "{}: {} has tokens of another tokenizer (of {} ids, hash {:016x}) than {} {} (of {} "
               "ids, hash {:016x}); give data.tokenizer the one that zero_prepare was given, or "
               "prepare the texts again; if all ids in the file mean the same, zero_prepare "
               "--digest {} forgets the tokenizer",
               each.key, each.file.path(), made.vocabulary, made.hash, key, name, mark.vocabulary,
               mark.hash, each.file.path());
  }
  return "";
}

}  // namespace zero
