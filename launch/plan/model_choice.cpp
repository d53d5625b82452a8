// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/model_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>

#include "architecture/family.h"
#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/configuration.h"
#include "launch/config/option.h"
#include "launch/config/similar_names.h"
#include "weights/hf/config.h"

namespace zero {
namespace {

constexpr const char* kModelFlag = "--model";

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The one published name that is `text` or ends with it behind a hyphen; empty: none, or several.
std::string published_name(const std::string& text) {
  std::string found;
  for (const std::string& name : published_names()) {
    if (name == text) return name;
    if (!name.ends_with("-" + text)) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

std::vector<std::string> section_keys_of(const Family& family) {
  std::vector<std::string> keys{"family"};
  keys.insert(keys.end(), family.keys.begin(), family.keys.end());
  return keys;
}

/// A number, true or false as JSON has it, or a text.
nlohmann::json value_in(const std::string& text) {
  const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  return value.is_discarded() ? nlohmann::json(text) : value;
}

DecoderShape shape_from_sizes(const std::string& text) {
  nlohmann::json section = nlohmann::json::object();
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    ZERO_CHECK(equals != std::string::npos && equals > 0 && equals + 1 < part.size(),
               "{}: found \"{}\" among sizes, expected key=value, such as layers=32", kModelFlag,
               printable_line(part));
    const std::string key = part.substr(0, equals);
    const nlohmann::json value = value_in(part.substr(equals + 1));
    ZERO_CHECK(!section.contains(key), "{}: {} is given twice among sizes; keep one", kModelFlag,
               printable_line(key));
    ZERO_CHECK(!value.is_null(), "{}: {} is null among sizes; give a value, or leave the key out",
               kModelFlag, printable_line(key));
    section[key] = value;
  }
  const nlohmann::json of = section.value("family", nlohmann::json("gpt2"));
  const auto known = std::ranges::find_if(families(), [&](const Family* each) {
    return of == nlohmann::json(std::string(each->name));
  });
  ZERO_CHECK(known != families().end(), "{}: family: there is no family {}", kModelFlag, of.dump());
  const std::vector<std::string> keys = section_keys_of(**known);
  for (const auto& [key, value] : section.items()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const std::string near = nearest_name(key, keys);
    fail("{}: the family {} has no key \"{}\"{}; its keys are {}", kModelFlag, (*known)->name,
         printable_line(key), near.empty() ? "" : ": did you mean " + near + "?",
         fmt::join(keys, ", "));
  }
  return decoder_shape(std::move(section));
}

DecoderShape shape_from_file(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return read_hf_config(path.string());
  return parse_hf_config(path.string(), read_json_text(path.string(), kModelFlag));
}

/// Throws if a key is outside what a configuration may have, or if there are more blocks than are
/// planned within seconds: schedules take the square of them.
DecoderShape within_limits(DecoderShape model) {
  constexpr std::int64_t kMostLayers = 256;
  ZERO_CHECK(model.layers <= kMostLayers, "{}: layers is {}, expected at most {} to be planned",
             kModelFlag, model.layers, kMostLayers);
  const nlohmann::json section = model.family->to_section(model);
  for (const Option& option : model_options()) {
    const std::string key = option.path.substr(option.path.find('.') + 1);
    const auto value = section.find(key);
    if (value == section.end() || !value->is_number()) continue;
    const auto number = value->get<double>();
    ZERO_CHECK(number >= option.low && number <= option.high,
               "{}: {} is {}, expected {} to {}, as zero_train takes", kModelFlag, key,
               value->dump(), option.low, option.high);
  }
  return model;
}

}  // namespace

std::vector<std::string> published_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    names.insert(names.end(), family->published.begin(), family->published.end());
  }
  return names;
}

DecoderShape model_of(const std::string& text) {
  if (const std::string name = published_name(lower_case(text)); !name.empty()) {
    return decoder_shape({{"name", name}});
  }
  if (text.find('=') != std::string::npos) return within_limits(shape_from_sizes(text));
  if (std::filesystem::exists(text)) return within_limits(shape_from_file(text));
  const std::string near = nearest_name(text, published_names());
  fail(
      "{}: there is no model, folder or file \"{}\"{}; expected one of {}, sizes "
      "(family=llama,layers=32,width=4096,heads=32,intermediate=11008,vocabulary=32000,context="
      "2048), or a Hugging Face config.json",
      kModelFlag, printable_line(text), near.empty() ? "" : ": did you mean " + near + "?",
      fmt::join(published_names(), ", "));
}

}  // namespace zero
