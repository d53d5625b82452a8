// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_config.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_tree.h"
#include "base/message_text.h"
#include "base/whole_number.h"
#include "files/file_system.h"
#include "weights/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

JsonFields parse_file(const fs::path& path) {
  return JsonFields::parse(path.string(), read_model_text(path.string()));
}

std::vector<AddedToken> tokens_of_decoder(JsonFields& config) {
  std::vector<AddedToken> tokens;
  JsonFields decoder = config.object("added_tokens_decoder");
  for (const auto& [key, value] : config.raw("added_tokens_decoder").items()) {
    const auto id = whole_number(key, 0, kMostTokens - 1);
    ZERO_CHECK(id, "{}: expected an id below {}", decoder.place(key), kMostTokens);
    JsonFields token = decoder.object(key);
    tokens.push_back(read_added_token(token, *id));
  }
  return tokens;
}

/// The tokens that files beside a tokenizer's own add: "added_tokens_decoder" of
/// tokenizer_config.json, whose fields are `config`; or else added_tokens.json in `folder`, whose
/// tokens are special if they are among `special`.
std::vector<AddedToken> read_added_tokens(const std::string& folder, JsonFields& config,
                                          const SpecialNames& special) {
  if (config.has("added_tokens_decoder")) return tokens_of_decoder(config);
  const fs::path path = fs::path(folder) / "added_tokens.json";
  if (!fs::is_regular_file(path)) return {};
  const std::vector<std::string> contents = special.contents();
  const std::set<std::string> names(contents.begin(), contents.end());
  std::vector<AddedToken> tokens;
  const std::optional<json> file = parse_json_tree(read_model_text(path.string()));
  ZERO_CHECK(file && file->is_object(), "{}: is not a JSON object of tokens with ids",
             path.string());
  for (const auto& [content, id] : file->items()) {
    tokens.push_back(
        {.content = content,
         .id = read_token_id(id, fmt::format("{}: {}", path.string(), printable_line(content))),
         .special = names.contains(content)});
  }
  return tokens;
}

constexpr const char* kDefault = "default";
constexpr const char* kField = "chat_template";

/// Templates by their names.
using Templates = std::map<std::string, ChatTemplate>;

void add_file(Templates& templates, const std::string& name, const fs::path& path) {
  if (!fs::is_regular_file(path)) return;
  templates[name] = {.text = read_model_text(path.string()), .file = path.string(), .found = true};
}

Templates in_files(const fs::path& folder) {
  Templates templates;
  const fs::path several = folder / kMoreTemplates;
  for (const std::string& name : template_file_names(several.string())) {
    add_file(templates, fs::path(name).stem().string(), several / name);
  }
  if (!templates.contains(kDefault)) {
    add_file(templates, kDefault, folder / "chat_template.jinja");
  }
  return templates;
}

Templates in_config(JsonFields& config, const std::string& file) {
  Templates templates;
  const json& value = config.raw(kField);
  if (value.is_null()) return templates;
  if (value.is_object()) {
    JsonFields named = config.object(kField);
    for (const auto& [name, text] : value.items())
      templates[name] = {.text = named.text(name), .file = file, .found = true};
  } else if (value.is_array()) {
    for (const json& entry : value) {
      ZERO_CHECK(entry.is_object(), "{}: found {}, expected objects with name and template",
                 config.place(kField), entry.dump());
      JsonFields named(entry, config.place(kField), "");
      templates[named.text("name")] = {.text = named.text("template"), .file = file, .found = true};
    }
  } else {
    templates[kDefault] = {.text = config.text(kField), .file = file, .found = true};
  }
  return templates;
}

/// As transformers takes it: chat_template.jinja, called "default", and the files of the folder
/// additional_chat_templates; without any of them the text or the list in tokenizer_config.json,
/// whose fields are `config`; without that either those of chat_template.json, which its processors
/// of several kinds of input read. Of several the one called "default".
ChatTemplate read_chat_template(const std::string& folder, JsonFields& config) {
  const std::string file = (fs::path(folder) / "tokenizer_config.json").string();
  Templates templates = in_files(folder);
  if (templates.empty()) templates = in_config(config, file);
  const fs::path of_processor = fs::path(folder) / kTemplateJson;
  if (templates.empty() && fs::is_regular_file(of_processor)) {
    JsonFields fields = parse_file(of_processor);
    templates = in_config(fields, of_processor.string());
  }
  if (const auto found = templates.find(kDefault); found != templates.end()) return found->second;
  ChatTemplate none{.file = file};
  for (const auto& [name, each] : templates) {
    none.file = each.file;
    none.names.push_back(name);
  }
  return none;
}

std::vector<std::uint32_t> end_tokens_in(const fs::path& file) {
  if (!fs::is_regular_file(file)) return {};
  JsonFields fields = parse_file(file);
  json value = fields.raw("eos_token_id");
  if (value.is_null()) return {};
  if (!value.is_array()) value = json::array({value});
  std::vector<std::uint32_t> ids;
  for (const json& id : value) ids.push_back(read_token_id(id, fields.place("eos_token_id")));
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

std::vector<std::string> template_file_names(const std::string& folder) {
  files::FileSystem& disk = files::disk();
  if (disk.kind_of(folder) != files::PathKind::folder) return {};
  std::vector<std::string> names = disk.list(folder);
  std::erase_if(names, [&](const fs::path& name) {
    return name.extension() != ".jinja" ||
           disk.kind_of((folder / name).string()) != files::PathKind::file;
  });
  return names;
}

std::vector<AddedToken> read_added_tokens_of_json(const std::string& path) {
  std::vector<AddedToken> tokens;
  if (!fs::is_regular_file(path)) return tokens;
  JsonFields file = parse_file(path);
  for (const json& value : file.raw("added_tokens")) {
    ZERO_CHECK(value.is_object(), "{}: found {}, expected objects", file.place("added_tokens"),
               value.dump());
    JsonFields fields(value, path, "added_tokens.");
    const std::uint32_t id = read_token_id(fields.raw("id"), fields.place("id"));
    tokens.push_back(read_added_token(fields, id));
  }
  return tokens;
}

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config{.file = (fs::path(folder) / "tokenizer_config.json").string()};
  JsonFields fields = fs::is_regular_file(config.file)
                          ? parse_file(config.file)
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

void add_token(const TokenizerConfig& config, AddedToken& token, TokenTable& table) {
  token.special |= !token.content.empty() && token.content == config.special.of("eos_token");
  if (token.special) table.special.emplace(token.content, token.id);
  if (token.id >= table.pieces.size()) table.pieces.resize(token.id + 1);
  table.pieces[token.id] = token.special ? "" : token.content;
  table.drops_spaces |= token.left_space || token.right_space;
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
