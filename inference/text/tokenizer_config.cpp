// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/tokenizer_config.h"

#include <filesystem>

#include "base/error.h"
#include "checkpoint/model_files.h"
#include "inference/text/added_token_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A special token's name: a text, or an object with a field "content".
std::string token_name(HfFields& fields, std::string_view name) {
  if (fields.raw(name).is_object()) return fields.object(name).text("content");
  return fields.text(name, "");
}

/// The text itself, or the one named "default" of a list of {"name": ..., "template": ...}.
std::string read_template(HfFields& fields) {
  const json& value = fields.raw("chat_template");
  if (!value.is_array()) return fields.text("chat_template", "");
  for (const json& entry : value) {
    if (!entry.is_object()) continue;
    HfFields named(entry, fields.place("chat_template"), "");
    if (named.text("name", "") == "default") return named.text("template");
  }
  return "";
}

std::vector<std::uint32_t> end_tokens_in(const fs::path& file) {
  if (!fs::is_regular_file(file)) return {};
  HfFields fields = HfFields::parse(file.string(), read_model_text(file.string()));
  json value = fields.raw("eos_token_id");
  if (value.is_null()) return {};
  if (!value.is_array()) value = json::array({value});
  std::vector<std::uint32_t> ids;
  for (const json& id : value) {
    ZERO_CHECK(id.is_number_unsigned() && id.get<std::uint64_t>() < kMostTokens,
               "{}: found {}, expected ids below {}", fields.place("eos_token_id"), value.dump(),
               kMostTokens);
    ids.push_back(id.get<std::uint32_t>());
  }
  return ids;
}

std::uint32_t id_of(const std::string& token, const TokenTable& table, const char* field,
                    const TokenizerConfig& config) {
  const auto found = table.special.find(token);
  ZERO_CHECK(found != table.special.end(),
             "{}: {}: found \"{}\", expected a special token of the tokenizer", config.file, field,
             token);
  return found->second;
}

}  // namespace

std::vector<std::string> TokenizerConfig::token_names() const {
  std::vector<std::string> names{bos_token, eos_token};
  for (const auto& [field, name] : other_tokens) names.push_back(name);
  std::erase(names, "");
  return names;
}

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  const fs::path path = folder;
  TokenizerConfig config{.file = (path / "tokenizer_config.json").string()};
  config.chat_template_file = config.file;
  if (fs::is_regular_file(config.file)) {
    HfFields fields = HfFields::parse(config.file, read_model_text(config.file));
    config.bos_token = token_name(fields, "bos_token");
    config.eos_token = token_name(fields, "eos_token");
    for (const char* name : {"unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      config.other_tokens.emplace_back(name, token_name(fields, name));
    }
    if (fields.has("add_bos_token")) config.add_bos_token = fields.flag("add_bos_token");
    fields.only("add_eos_token", false, "no token follows a prompt");
    config.legacy = fields.flag("legacy", true);
    config.added_tokens = read_added_tokens(folder, fields);
    config.chat_template = read_template(fields);
  } else {
    HfFields none(json::object(), config.file, "");
    config.added_tokens = read_added_tokens(folder, none);
  }
  if (const fs::path jinja = path / "chat_template.jinja"; fs::is_regular_file(jinja)) {
    config.chat_template_file = jinja.string();
    config.chat_template = read_model_text(jinja.string());
  }
  return config;
}

std::vector<std::uint32_t> read_end_tokens(const std::string& folder) {
  std::vector<std::uint32_t> ids = end_tokens_in(fs::path(folder) / "generation_config.json");
  return ids.empty() ? end_tokens_in(fs::path(folder) / "config.json") : ids;
}

void apply_config(const TokenizerConfig& config, TokenTable& table) {
  if (config.add_bos_token) table.begin_of_text.clear();
  if (config.add_bos_token.value_or(false)) {
    table.begin_of_text = {id_of(config.bos_token, table, "bos_token", config)};
  }
  if (!config.eos_token.empty()) {
    table.end_of_document = id_of(config.eos_token, table, "eos_token", config);
  }
}

}  // namespace zero
