// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "inference/text/template_files.h"

#include <filesystem>
#include <map>

#include "base/error.h"
#include "checkpoint/model_files.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDefault = "default";
constexpr const char* kField = "chat_template";

/// Templates by their names.
using Templates = std::map<std::string, ChatTemplate>;

void add_file(Templates& templates, const std::string& name, const fs::path& path) {
  if (!fs::is_regular_file(path)) return;
  templates[name] = {.text = read_model_text(path.string()), .file = path.string()};
}

Templates in_files(const fs::path& folder) {
  Templates templates;
  const fs::path several = folder / "additional_chat_templates";
  if (fs::is_directory(several)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(several)) {
      if (entry.path().extension() != ".jinja") continue;
      add_file(templates, entry.path().stem().string(), entry.path());
    }
  }
  if (!templates.contains(kDefault)) {
    add_file(templates, kDefault, folder / "chat_template.jinja");
  }
  return templates;
}

Templates in_config(HfFields& config, const std::string& file) {
  Templates templates;
  const json& value = config.raw(kField);
  if (value.is_null()) return templates;
  if (value.is_object()) {
    HfFields named = config.object(kField);
    for (const auto& [name, text] : value.items()) templates[name] = {named.text(name), file};
  } else if (value.is_array()) {
    for (const json& entry : value) {
      ZERO_CHECK(entry.is_object(), "{}: found {}, expected objects with name and template",
                 config.place(kField), entry.dump());
      HfFields named(entry, config.place(kField), "");
      templates[named.text("name")] = {named.text("template"), file};
    }
  } else {
    templates[kDefault] = {config.text(kField), file};
  }
  return templates;
}

}  // namespace

ChatTemplate read_chat_template(const std::string& folder, HfFields& config) {
  const std::string file = (fs::path(folder) / "tokenizer_config.json").string();
  Templates templates = in_files(folder);
  if (templates.empty()) templates = in_config(config, file);
  if (const auto found = templates.find(kDefault); found != templates.end()) return found->second;
  ChatTemplate none{.file = file};
  for (const auto& [name, each] : templates) {
    none.file = each.file;
    none.names.push_back(name);
  }
  return none;
}

}  // namespace zero
