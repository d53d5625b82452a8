// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/model_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <utility>

#include "architecture/family.h"
#include "base/error.h"
#include "base/message_text.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration.h"
#include "launch/config/option.h"
#include "launch/config/similar_names.h"
#include "weights/hf/advice.h"
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

/// The published name that another spelling may mean: the hub's, or one that begins alike and has
/// the size ("llama3-8b"), or the nearest; empty: none is near.
std::string near_published_name(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, const char*>, 4> kOfHub{
      {{"gpt2", "gpt2-124m"},
       {"gpt2-medium", "gpt2-350m"},
       {"gpt2-large", "gpt2-774m"},
       {"gpt2-xl", "gpt2-1558m"}}};
  const std::string name = lower_case(text.substr(text.rfind('/') + 1));
  const auto of_hub = std::ranges::find(kOfHub, name, [](const auto& each) { return each.first; });
  if (of_hub != kOfHub.end()) return of_hub->second;
  constexpr std::size_t kAlike = 3;
  std::istringstream words(name);
  for (std::string word; std::getline(words, word, '-');) {
    std::string found = published_name(word);
    if (found.substr(0, kAlike) == name.substr(0, kAlike)) return found;
  }
  return nearest_name(name, published_names());
}

/// How the shape of a model of Hugging Face's hub is had, if `text` may name one.
std::string hub_advice(const std::string& text) {
  if (!is_hub_name(text)) return "";
  return fmt::format(
      "; if {0} is a name of Hugging Face's hub: nothing is downloaded here; run hf download {0} "
      "config.json --local-dir FOLDER, and give FOLDER",
      text);
}

/// "layers=32,width=4096" as a section: numbers, true and false as JSON has them, else texts.
nlohmann::json section_of(const std::string& text) {
  nlohmann::json section = nlohmann::json::object();
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    ZERO_CHECK(equals != std::string::npos && equals > 0 && equals + 1 < part.size(),
               "{}: found \"{}\" among sizes, expected key=value, such as layers=32", kModelFlag,
               printable_line(part));
    const std::string key = part.substr(0, equals);
    const std::string typed = part.substr(equals + 1);
    const nlohmann::json value = nlohmann::json::parse(typed, nullptr, false);
    ZERO_CHECK(!section.contains(key), "{}: {} is given twice among sizes; keep one", kModelFlag,
               printable_line(key));
    ZERO_CHECK(!value.is_null(), "{}: {} is null among sizes; give a value, or leave the key out",
               kModelFlag, printable_line(key));
    section[key] = value.is_discarded() ? nlohmann::json(typed) : value;
  }
  return section;
}

DecoderShape shape_from_sizes(const std::string& text) {
  nlohmann::json section = section_of(text);
  const nlohmann::json of = section.value("family", nlohmann::json("gpt2"));
  const Family& family = family_named(of.is_string() ? of.get<std::string>() : of.dump());
  std::vector<std::string> keys{"family"};
  keys.insert(keys.end(), family.keys.begin(), family.keys.end());
  for (auto& [key, value] : section.items()) {
    ZERO_CHECK(std::ranges::find(keys, key) != keys.end(),
               "{}: the family {} has no key \"{}\"{}; its keys are {}", kModelFlag, family.name,
               printable_line(key), did_you_mean(key, keys), fmt::join(keys, ", "));
    for (const Option& option : model_options()) {
      if (option.path == "model." + key) value = checked_value(option, value, kModelFlag);
    }
  }
  return decoder_shape(std::move(section));
}

DecoderShape shape_from_file(const std::filesystem::path& path, ModelCodes codes) {
  const std::string folder = model_folder_of(path.string());
  if (codes == ModelCodes::read && !folder.empty()) return read_hf_model(folder).shape;
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

DecoderShape model_of(const std::string& text, ModelCodes codes) {
  if (const std::string name = published_name(lower_case(text)); !name.empty()) {
    return decoder_shape({{"name", name}});
  }
  if (text.find('=') != std::string::npos) return within_limits(shape_from_sizes(text));
  if (std::filesystem::exists(text)) return within_limits(shape_from_file(text, codes));
  const std::string near = near_published_name(text);
  fail(
      "{}: there is no model, folder or file \"{}\"{}; expected one of {}, sizes "
      "(family=llama,layers=32,width=4096,heads=32,intermediate=11008,vocabulary=32000,context="
      "2048), or a Hugging Face config.json{}",
      kModelFlag, printable_line(text), near.empty() ? "" : ": did you mean " + near + "?",
      fmt::join(published_names(), ", "), hub_advice(text));
}

bool can_cut(const DecoderShape& model, int ranks) {
  try {
    model.validate(ranks);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::string model_folder_of(const std::string& text) {
  const std::filesystem::path path(text);
  if (std::filesystem::is_directory(path)) return text;
  const bool config = path.filename() == "config.json" && std::filesystem::exists(path);
  if (!config) return "";
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

}  // namespace zero
