// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/configuration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/message_text.h"

namespace zero {
namespace {

/// The tree of a run's file. Refuses the config.json of a model, which has another one's place.
nlohmann::json read_run_file(const std::string& path) {
  nlohmann::json tree = read_json_file(path);
  const bool of_model =
      tree.is_object() && (tree.contains("model_type") || tree.contains("architectures"));
  if (!of_model) return tree;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  fail(
      "{}: is a model's config.json, not the configuration of a run; give --config a file of the "
      "run's keys, and the model's folder as model.hf: --set model.hf={}",
      path, folder.empty() ? "." : folder);
}

}  // namespace

Configuration Configuration::read(const std::string& path,
                                  const std::vector<std::string>& overrides, Refusals* refusals) {
  return from_json(read_run_file(path), path, overrides, refusals);
}

bool Configuration::given(std::string_view path) const {
  const Value& value = at(path);
  return value.source == source_ || value.source == "--set";
}

const Configuration::Value& Configuration::at(std::string_view path) const {
  const auto found = values_.find(path);
  ZERO_CHECK(found != values_.end(), "the option table has no key \"{}\"", path);
  return found->second;
}

std::string Configuration::text(std::string_view path) const {
  return is_null(path) ? "" : at(path).value.get<std::string>();
}

std::vector<std::string> Configuration::texts(std::string_view path) const {
  const nlohmann::json& value = at(path).value;
  if (value.is_null()) return {};
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

void Configuration::resolve(std::string_view path, nlohmann::json value, std::string source) {
  ZERO_CHECK(find_option(path) != nullptr, "the option table has no key \"{}\"", path);
  values_[std::string(path)] = {std::move(value), std::move(source)};
}

std::string Configuration::note() const {
  std::vector<std::string> keys;
  for (const Option& option : option_table()) {
    const bool accepted = option.handling == Handling::accepted ||
                          option.handling == Handling::unless_enabled ||
                          option.handling == Handling::unless_disabled;
    if (accepted && given(option.path)) keys.push_back(option.path);
  }
  std::string text;
  if (!keys.empty()) {
    text = as_written(
        fmt::format("{}: accepted, and cannot change results here (--print-config says why): {}",
                    source_, fmt::join(keys, ", ")));
  }
  if (remarks_.empty()) return text;
  return fmt::format("{}{} {}", text, text.empty() ? source_ + ": read as remarks:" : "; remarks:",
                     printable_line(fmt::format("{}", fmt::join(remarks_, ", "))));
}

std::string Configuration::as_written(std::string message) const {
  const auto in_key = [&](std::size_t at) {
    const char c = at < message.size() ? message[at] : ' ';
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
           (c == '.' && at + 1 < message.size() && message[at + 1] != ' ');
  };
  for (const auto& [path, written] : spellings_) {
    if (path.find('.') == std::string::npos) continue;  // "bf16" is a data type as well
    for (std::size_t at = message.find(path); at != std::string::npos;
         at = message.find(path, at + written.size())) {
      if (in_key(at + path.size()) || (at > 0 && in_key(at - 1))) continue;
      message.replace(at, path.size(), written);
    }
  }
  return message;
}

std::string Configuration::dump() const {
  std::string text;
  for (const Option& option : option_table()) {
    const Value& value = at(option.path);
    // Keys that cannot take effect are listed only if given.
    if (option.handling != Handling::honoured && !given(option.path)) continue;
    const std::string note =
        option.handling == Handling::honoured ? "" : "; changes nothing here: " + option.help;
    text += fmt::format("{:<52} = {:<24} # {}{}\n", option.path, value.value.dump(), value.source,
                        note);
  }
  return text;
}

std::map<std::string, std::string> Configuration::effective() const {
  std::map<std::string, std::string> all;
  for (const Option& option : option_table()) {
    if (option.handling == Handling::honoured) all[option.path] = at(option.path).value.dump();
  }
  return all;
}

}  // namespace zero
