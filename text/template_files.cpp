// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/template_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/error.h"
#include "weights/model_files.h"

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

}  // namespace

std::vector<std::string> template_file_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code no_file;
    const bool is_template = at->path().extension() == ".jinja" && at->is_regular_file(no_file);
    if (is_template) names.push_back(at->path().filename().string());
  }
  const bool missing =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  ZERO_CHECK(!error || missing,
             "{}: the folder of chat templates cannot be read: {}; allow reading it, or remove it",
             folder, error.message());
  std::ranges::sort(names);
  return names;
}

ChatTemplate read_chat_template(const std::string& folder, JsonFields& config) {
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
