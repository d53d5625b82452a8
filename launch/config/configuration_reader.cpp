// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "checkpoint/json_tree.h"
#include "launch/config/configuration.h"

namespace zero {
namespace {

/// Edit distance: insertions, deletions, replacements and swaps of neighbours that turn `a` into
/// `b`, ignoring case.
int edit_distance(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  };
  // rows[i][j]: distance of the first i characters of a and the first j of b (optimal alignment)
  std::vector<std::vector<int>> rows(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) rows[i][0] = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replace = rows[i - 1][j - 1] + (same(a[i - 1], b[j - 1]) ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1])) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

/// The candidate nearest to `word`, or an empty string if none is near (a third of its length).
std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  int least = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const int distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

using nlohmann::json;

std::string joined(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

bool same_text(const std::string& a, const std::string& b) {
  return a.size() == b.size() && edit_distance(a, b) == 0;  // ignoring case
}

/// Whether the key, or one that it lies in, has a value of any form, of which --set can give a
/// member: another program's section.
bool takes_anything(const std::string& path) {
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    const Option* const option = find_option(path.substr(0, end));
    if (option != nullptr) return option->type == ValueType::anything;
    if (end == std::string::npos) return false;
  }
}

/// The table's spelling of a name that differs only in case ("adamw"); otherwise `text`.
std::string as_listed(const std::string& text, const std::vector<std::string>& choices) {
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&](const std::string& c) { return same_text(c, text); });
  return found == choices.end() ? text : *found;
}

}  // namespace

/// Turns a parsed file and overrides into a Configuration, checking each key and value against the
/// option table.
class ConfigurationReader {
 public:
  ConfigurationReader(nlohmann::json tree, std::string source, std::vector<std::string> overrides);
  Configuration read();

 private:
  void apply_override(const std::string& text);
  void walk(const nlohmann::json& object, const std::string& section);
  void take(const Option& option, nlohmann::json value);
  nlohmann::json checked(const Option& option, const nlohmann::json& value) const;
  nlohmann::json checked_number(const Option& option, const nlohmann::json& value) const;
  nlohmann::json checked_auto(const Option& option) const;
  void check_handling(const Option& option, const nlohmann::json& value) const;
  void check_types(const char* section) const;
  void fill_defaults();
  std::string source_of(const std::string& path) const;
  [[noreturn]] void unknown(const std::string& path) const;
  [[noreturn]] void mismatch(const Option& option, const nlohmann::json& value) const;

  nlohmann::json tree_;
  std::string source_;
  std::vector<std::string> overrides_;
  std::vector<std::string> override_paths_;
  Configuration result_;
};

ConfigurationReader::ConfigurationReader(json tree, std::string source,
                                         std::vector<std::string> overrides)
    : tree_(std::move(tree)), source_(std::move(source)), overrides_(std::move(overrides)) {}

Configuration ConfigurationReader::read() {
  ZERO_CHECK(tree_.is_object(), "{}: found {} at the top, expected an object of sections", source_,
             shown(tree_));
  for (const std::string& text : overrides_) apply_override(text);
  result_.source_ = source_;
  walk(tree_, "");
  fill_defaults();
  check_types("optimizer");
  check_types("scheduler");
  return std::move(result_);
}

void ConfigurationReader::apply_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  ZERO_CHECK(equals != std::string::npos && equals > 0,
             "--set {}: expected key.path=value, for example --set run.steps=10", text);
  const std::string path = canonical_path(text.substr(0, equals));
  const std::string raw = text.substr(equals + 1);
  override_paths_.push_back(path);
  const Option* option = find_option(path);
  const std::optional<json> tree = parse_json_tree(raw);
  const bool plain_text = option != nullptr &&
                          (option->type == ValueType::text || option->type == ValueType::text_list);
  const bool as_it_is = !tree || (plain_text && (tree->is_number() || tree->is_boolean()));
  json value = as_it_is ? json(raw) : *tree;
  json* node = &tree_;
  std::string section;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    const std::string key = path.substr(begin, dot - begin);
    section = joined(section, key);
    if (!is_section(section) && !takes_anything(section)) unknown(path);
    json& child = (*node)[key];
    if (section == "model" && child.is_string()) child = json{{"name", child}};
    if (child.is_null()) child = json::object();
    ZERO_CHECK(child.is_object(), "--set {}: {} is {} in {}, not a section", text, section,
               shown(child), source_);
    node = &child;
    begin = dot + 1;
  }
  (*node)[path.substr(begin)] = std::move(value);
}

std::string ConfigurationReader::source_of(const std::string& path) const {
  const bool overridden =
      std::any_of(override_paths_.begin(), override_paths_.end(), [&](const std::string& given) {
        return path == given || path.starts_with(given + ".") ||
               (takes_anything(path) && given.starts_with(path + "."));
      });
  return overridden ? "--set" : source_;
}

void ConfigurationReader::walk(const json& object, const std::string& section) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = canonical_path(joined(section, key));
    if (const Option* option = find_option(path); option != nullptr) {
      take(*option, value);
    } else if (path == "model" && value.is_string()) {
      take(*find_option("model.name"), value);
    } else if (!is_section(path)) {
      unknown(joined(section, key));
    } else if (value.is_object()) {
      walk(value, path);
    } else {
      ZERO_CHECK(
          value.is_null() || value == "auto", "{}: {}: found {}, expected an object with keys {}{}",
          source_of(path), path, shown(value), fmt::join(keys_of_section(path), ", "),
          path == "zero_optimization" ? "; write \"zero_optimization\": {\"stage\": 1}" : "");
      ZERO_CHECK(value.is_null(),
                 "{}: {} is \"auto\"; give an object with keys {}, or leave it out",
                 source_of(path), path, fmt::join(keys_of_section(path), ", "));
    }
  }
}

void ConfigurationReader::take(const Option& option, json value) {
  ZERO_CHECK(result_.values_.find(option.path) == result_.values_.end(),
             "{}: {} is given twice, under two names; keep one of them", source_of(option.path),
             option.path);
  std::string source = source_of(option.path);
  const bool a_choice = std::ranges::count(option.choices, "auto") > 0;
  if (value == "auto" && !a_choice && option.type != ValueType::anything) {
    value = checked_auto(option);
    source += " (auto)";
  } else {
    value = checked(option, value);
  }
  check_handling(option, value);
  result_.values_[option.path] = {std::move(value), std::move(source)};
}

json ConfigurationReader::checked_auto(const Option& option) const {
  if (option.from_run) return json();
  static const std::vector<std::string> inferred{
      "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
      "scheduler.params.total_num_steps"};
  const bool resolved =
      std::find(inferred.begin(), inferred.end(), option.path) != inferred.end() ||
      (option.path.starts_with("zero_optimization.") && option.path != "zero_optimization.stage");
  ZERO_CHECK(resolved,
             "{}: {} is \"auto\", which only a surrounding framework can fill in; give {}{}",
             source_of(option.path), option.path, expectation(option),
             option.fallback.empty() ? "" : ", for example the default " + option.fallback);
  return json::parse(option.fallback);
}

json ConfigurationReader::checked(const Option& option, const json& value) const {
  if (value.is_null()) {
    if (option.fallback != "null") mismatch(option, value);
    return value;
  }
  switch (option.type) {
    case ValueType::boolean:
      if (!value.is_boolean()) mismatch(option, value);
      return value;
    case ValueType::integer:
    case ValueType::number:
      return checked_number(option, value);
    case ValueType::text: {
      if (!value.is_string() || value.get<std::string>().empty()) mismatch(option, value);
      if (option.choices.empty()) return value;
      const std::string text = as_listed(value.get<std::string>(), option.choices);
      if (std::find(option.choices.begin(), option.choices.end(), text) == option.choices.end()) {
        mismatch(option, value);
      }
      return text;
    }
    case ValueType::text_list: {
      const auto is_text = [](const json& v) {
        return v.is_string() && !v.get<std::string>().empty();
      };
      const bool list =
          value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_text);
      if (!is_text(value) && !list) mismatch(option, value);
      return value;
    }
    case ValueType::duration:
      if (!seconds_of(value)) mismatch(option, value);
      return value;
    case ValueType::bytes:
      if (!bytes_of(value)) mismatch(option, value);
      return value;
    case ValueType::betas: {
      const auto is_beta = [](const json& v) { return v.is_number() && v >= 0.0 && v < 1.0; };
      const bool two =
          value.is_array() && value.size() == 2 && is_beta(value[0]) && is_beta(value[1]);
      if (!two) mismatch(option, value);
      return value;
    }
    case ValueType::anything:
      return value;
  }
  return value;
}

json ConfigurationReader::checked_number(const Option& option, const json& value) const {
  if (!value.is_number()) mismatch(option, value);
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < option.low || number > option.high)
    mismatch(option, value);
  if (option.type == ValueType::number) return number;
  if (value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<std::uint64_t>() >> 63U != 0)) {
    return value.get<std::int64_t>();
  }
  // 5e8 is a float in JSON but a whole number here; a count must be below 2^63.
  if (number != std::floor(number) || std::abs(number) >= 9223372036854775807.0)
    mismatch(option, value);
  return static_cast<std::int64_t>(number);
}

void ConfigurationReader::check_handling(const Option& option, const json& value) const {
  if (option.handling == Handling::only_default) {
    ZERO_CHECK(value == json::parse(option.fallback),
               "{}: {} = {} is not offered: {}; leave it out or set {}", source_of(option.path),
               option.path, shown(value), option.help, option.fallback);
  }
  if (option.handling == Handling::unless_enabled) {
    const bool enabled = value.is_object() ? value.value("enabled", json(false)) != json(false)
                                           : !value.is_null() && value != json(false);
    ZERO_CHECK(!enabled, "{}: {} is not offered: {}; leave it out or set {}.enabled to false",
               source_of(option.path), option.path, option.help, option.path);
  }
}

void ConfigurationReader::check_types(const char* section) const {
  const std::string type = result_.text(std::string(section) + ".type");
  for (const Option& option : option_table()) {
    if (!option.path.starts_with(std::string(section) + ".params.") || option.types.empty())
      continue;
    if (std::find(option.types.begin(), option.types.end(), type) != option.types.end()) continue;
    ZERO_CHECK(!result_.given(option.path), "{}: {} does not belong to {}.type \"{}\" but to {}",
               source_of(option.path), option.path, section, type, fmt::join(option.types, ", "));
  }
}

void ConfigurationReader::fill_defaults() {
  for (const Option& option : option_table()) {
    if (result_.values_.find(option.path) != result_.values_.end()) continue;
    ZERO_CHECK(!option.fallback.empty(), "{}: {} is missing: {}; give {}", source_, option.path,
               option.help, expectation(option));
    json value = json::parse(option.fallback);
    if (option.from_run && value == "auto") value = nullptr;
    result_.values_[option.path] = {std::move(value), "default"};
  }
}

void ConfigurationReader::unknown(const std::string& path) const {
  const std::size_t dot = path.rfind('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string key = dot == std::string::npos ? path : path.substr(dot + 1);
  if (is_section(section)) {
    const std::string near = nearest(key, keys_of_section(section));
    ZERO_CHECK(near.empty(), "{}: unknown key \"{}\"; did you mean \"{}\"?", source_of(path), path,
               joined(section, near));
  }
  std::vector<std::string> last_names;
  for (const Option& option : option_table()) {
    last_names.push_back(option.path.substr(option.path.rfind('.') + 1));
  }
  const std::string near = nearest(key, last_names);
  if (!near.empty()) {
    const auto index = std::find(last_names.begin(), last_names.end(), near) - last_names.begin();
    fail("{}: unknown key \"{}\"; did you mean \"{}\"?", source_of(path), path,
         option_table()[static_cast<std::size_t>(index)].path);
  }
  fail("{}: unknown key \"{}\"; {} has the keys {}", source_of(path), path,
       section.empty() || !is_section(section) ? "the top level" : section,
       fmt::join(keys_of_section(is_section(section) ? section : ""), ", "));
}

void ConfigurationReader::mismatch(const Option& option, const json& value) const {
  if (option.path == "scheduler.type" && (value == "OneCycle" || value == "LRRangeTest")) {
    fail("{}: scheduler.type {} is not offered: it also changes momentum or searches rates; use {}",
         source_of(option.path), shown(value), expectation(option));
  }
  fail("{}: {}: found {}, expected {}{}", source_of(option.path), option.path, shown(value),
       expectation(option),
       option.fallback.empty() || option.fallback == "null"
           ? ""
           : "; the default is " + option.fallback);
}

Configuration Configuration::from_json(nlohmann::json tree, const std::string& source,
                                       const std::vector<std::string>& overrides) {
  return ConfigurationReader(std::move(tree), source, overrides).read();
}

}  // namespace zero
