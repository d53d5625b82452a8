// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_config.h"

#include <filesystem>

#include "base/error.h"
#include "base/printable.h"
#include "text/added_token_files.h"
#include "weights/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<std::uint32_t> end_tokens_in(const fs::path& file) {
  if (!fs::is_regular_file(file)) return {};
  JsonFields fields = JsonFields::parse(file.string(), read_model_text(file.string()));
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

/// The token that has this part in texts.
std::uint32_t id_of(const char* part, const TokenTable& table, const TokenizerConfig& config) {
  const std::string token(config.special.of(part));
  const auto found = table.special.find(token);
  if (found != table.special.end()) return found->second;
  const auto name = config.special.names.find(part);
  fail(
      "{}: {}: found \"{}\", expected a special token of the tokenizer; list it among the "
      "added_tokens of its file, with \"special\": true",
      name != config.special.names.end() ? name->second.file : config.file, part,
      printable_line(token));
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config{.file = (fs::path(folder) / "tokenizer_config.json").string()};
  JsonFields fields = fs::is_regular_file(config.file)
                          ? JsonFields::parse(config.file, read_model_text(config.file))
                          : JsonFields(json::object(), config.file, "");
  config.special = read_special_names(folder, fields);
  if (fields.has("add_bos_token")) config.add_bos_token = fields.flag("add_bos_token");
  fields.only("add_eos_token", false, "no token follows a prompt");
  config.legacy = fields.flag("legacy", true);
  config.added_tokens = read_added_tokens(folder, fields, config.special);
  config.chat_template = read_chat_template(folder, fields);
  return config;
}

std::vector<std::uint32_t> read_end_tokens(const std::string& folder) {
  std::vector<std::uint32_t> ids = end_tokens_in(fs::path(folder) / "generation_config.json");
  return ids.empty() ? end_tokens_in(fs::path(folder) / "config.json") : ids;
}

void apply_config(const TokenizerConfig& config, TokenTable& table) {
  if (config.add_bos_token) table.begin_of_text.clear();
  if (config.add_bos_token.value_or(false)) {
    table.begin_of_text = {id_of("bos_token", table, config)};
  }
  if (!config.special.of("eos_token").empty()) {
    table.end_of_document = id_of("eos_token", table, config);
  }
}

}  // namespace zero
