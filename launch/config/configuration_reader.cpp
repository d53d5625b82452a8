// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "checkpoint/json_tree.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration.h"
#include "launch/config/refusals.h"
#include "launch/config/similar_names.h"

namespace zero {
namespace {

using nlohmann::json;

std::string joined(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
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

/// Whether a key of a file is a remark, as people write them where JSON has no comments.
bool is_remark(const std::string& key) {
  return key.starts_with("_") || key.starts_with("//") || key.starts_with("#") || key == "$schema";
}

/// Whether a value of another program's section, or of a part of it, switches that on.
bool enables(const json& value) {
  if (!value.is_object()) return !value.is_null() && value != json(false);
  if (value.contains("enabled")) return value["enabled"] != json(false);
  return std::ranges::any_of(value,
                             [](const json& part) { return part.is_object() && enables(part); });
}

/// `value` as --set takes it for `option`, quoted for a shell where it has to be.
std::string as_override(const Option& option, const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const std::string set = option.path + "=" + text;
  return set.find_first_of(" []{}\"*") == std::string::npos ? set : "'" + set + "'";
}

}  // namespace

/// Turns a parsed file and overrides into a Configuration, checking each key and value against the
/// option table.
class ConfigurationReader {
 public:
  ConfigurationReader(nlohmann::json tree, std::string source, std::vector<std::string> overrides);
  Configuration read();

 private:
  json canonical(const json& object, const std::string& section, const std::string& written);
  void apply_override(const std::string& text);
  void put(const std::string& path, nlohmann::json value, const std::string& text);
  void walk(const nlohmann::json& object, const std::string& section);
  void check_section(const std::string& path, const nlohmann::json& value) const;
  void take(const Option& option, nlohmann::json value);
  nlohmann::json checked_auto(const Option& option);
  void check_handling(const Option& option, const nlohmann::json& value) const;
  void check_types(const char* section);
  void fill_defaults();
  void refuse_autos();
  std::string source_of(const std::string& path) const;
  [[noreturn]] void unknown(const std::string& path) const;

  nlohmann::json tree_;
  std::string source_;
  std::vector<std::string> overrides_;
  std::vector<std::string> override_paths_;
  std::vector<const Option*> autos_;  // that nothing here resolves
  Refusals refusals_;
  Configuration result_;
};

ConfigurationReader::ConfigurationReader(json tree, std::string source,
                                         std::vector<std::string> overrides)
    : tree_(std::move(tree)), source_(std::move(source)), overrides_(std::move(overrides)) {}

Configuration ConfigurationReader::read() {
  ZERO_CHECK(tree_.is_object(), "{}: found {} at the top, expected an object of sections", source_,
             shown_value(tree_));
  tree_ = canonical(tree_, "", "");
  result_.source_ = source_;
  for (const std::string& text : overrides_) refusals_.collect([&] { apply_override(text); });
  walk(tree_, "");
  fill_defaults();
  check_types("optimizer");
  check_types("scheduler");
  refuse_autos();
  try {
    refusals_.raise(source_);
  } catch (const Error& error) {
    throw Error(result_.as_written(error.what()));
  }
  return std::move(result_);
}

/// The object with the table's names of keys, without remarks. `written` is the section's name as
/// the file has it.
json ConfigurationReader::canonical(const json& object, const std::string& section,
                                    const std::string& written) {
  json result = json::object();
  for (const auto& [key, value] : object.items()) {
    if (is_remark(key)) {
      result_.remarks_.push_back(joined(written, key));
      continue;
    }
    const std::string path = canonical_path(joined(section, key));
    const std::string name = section.empty() ? path : path.substr(section.size() + 1);
    const std::string as_in_file = joined(written, key);
    if (result.contains(name)) {
      result_.spellings_.erase(path);
      refusals_.add(fmt::format("{}: {} is given twice, also as {}; keep one of them", source_,
                                path, path == as_in_file ? "an older name" : as_in_file));
      continue;
    }
    if (path != as_in_file) result_.spellings_[path] = as_in_file;
    result[name] = value.is_object() && is_section(path) && find_option(path) == nullptr
                       ? canonical(value, path, as_in_file)
                       : value;
  }
  return result;
}

void ConfigurationReader::apply_override(const std::string& text) {
  const std::size_t equals = text.find('=');
  ZERO_CHECK(equals != std::string::npos && equals > 0,
             "--set {}: expected key.path=value, for example --set run.steps=10", text);
  const std::string typed = text.substr(0, equals);
  const std::string path = canonical_path(typed);
  const std::string raw = text.substr(equals + 1);
  override_paths_.push_back(path);
  result_.spellings_.erase(path);
  if (typed != path) result_.spellings_[path] = typed;
  const Option* option = find_option(path);
  const std::optional<json> tree = parse_json_tree(raw);
  const bool plain_text = option != nullptr &&
                          (option->type == ValueType::text || option->type == ValueType::text_list);
  const bool as_it_is = !tree || (plain_text && (tree->is_number() || tree->is_boolean()));
  put(path, as_it_is ? json(raw) : *tree, text);
}

/// Sets the value of a key in the tree. Null takes the key out of the file, whatever it is, unless
/// null is one of its values.
void ConfigurationReader::put(const std::string& path, json value, const std::string& text) {
  const Option* const option = find_option(path);
  const bool removes = value.is_null() && (option == nullptr || !option->takes_null());
  json* node = &tree_;
  std::string section;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    const std::string key = path.substr(begin, dot - begin);
    section = joined(section, key);
    const bool known = is_section(section) || takes_anything(section);
    if (!known && !(removes && node->contains(key))) unknown(path);
    json& child = (*node)[key];
    if (section == "model" && child.is_string()) child = json{{"name", child}};
    if (child.is_null()) child = json::object();
    ZERO_CHECK(child.is_object(), "--set {}: {} is {} in {}, not a section", text, section,
               shown_value(child), source_);
    node = &child;
    begin = dot + 1;
  }
  const std::string key = path.substr(begin);
  if (!removes || takes_anything(path)) {
    (*node)[key] = std::move(value);
    return;
  }
  if (node->erase(key) == 0 && option == nullptr && !is_section(path)) unknown(path);
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
  for (const auto& [key, member] : object.items()) {
    const std::string path = joined(section, key);
    const json& value = member;
    if (const Option* option = find_option(path); option != nullptr) {
      refusals_.collect([&] { take(*option, value); });
    } else if (path == "model" && value.is_string()) {
      refusals_.collect([&] { take(*find_option("model.name"), value); });
    } else if (!is_section(path)) {
      refusals_.collect([&] { unknown(path); });
    } else if (value.is_object()) {
      walk(value, path);
    } else {
      refusals_.collect([&] { check_section(path, value); });
    }
  }
}

/// A section may be null, which is to say absent.
void ConfigurationReader::check_section(const std::string& path, const json& value) const {
  if (value.is_null()) return;
  const auto written = result_.spellings_.find(path);
  const std::string& name = written == result_.spellings_.end() ? path : written->second;
  const std::string keys = fmt::format("{}", fmt::join(keys_of_section(path), ", "));
  ZERO_CHECK(value != "auto",
             "{}: {} is \"auto\"; give an object with keys {}, or leave it out: --set {}=null",
             source_of(path), name, keys, name);
  fail("{}: {}: found {}, expected an object with keys {}{}", source_of(path), name,
       shown_value(value), keys,
       path == "zero_optimization" ? "; write \"zero_optimization\": {\"stage\": 1}" : "");
}

void ConfigurationReader::take(const Option& option, json value) {
  std::string source = source_of(option.path);
  // A refused key counts as absent for the checks that follow.
  result_.values_[option.path] = {option.default_value(), "default"};
  const bool a_choice = std::ranges::count(option.choices, "auto") > 0;
  if (value == "auto" && !a_choice && option.type != ValueType::anything) {
    value = checked_auto(option);
    source += " (auto)";
  } else {
    value = checked_value(option, value, source);
  }
  check_handling(option, value);
  result_.values_[option.path] = {std::move(value), std::move(source)};
}

json ConfigurationReader::checked_auto(const Option& option) {
  if (option.from_run) return json();
  static const std::vector<std::string> inferred{
      "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
      "scheduler.params.total_num_steps", "scheduler.params.warmup_max_lr"};
  const bool resolved =
      std::find(inferred.begin(), inferred.end(), option.path) != inferred.end() ||
      (option.path.starts_with("zero_optimization.") && option.path != "zero_optimization.stage");
  if (!resolved) autos_.push_back(&option);
  return option.default_value();
}

/// One message for all, with what can be copied after the command.
void ConfigurationReader::refuse_autos() {
  if (autos_.empty()) return;
  if (autos_.size() == 1) {
    const Option& option = *autos_.front();
    refusals_.add(fmt::format(
        "{}: {} is \"auto\", which only a surrounding framework can fill in; give {}{}",
        source_of(option.path), option.path, expectation(option),
        option.fallback.empty()
            ? ""
            : ", for example the default: --set " + as_override(option, option.default_value())));
    return;
  }
  std::vector<std::string> sets;
  for (const Option* option : autos_) {
    sets.push_back(
        as_override(*option, option->fallback.empty() ? json("...") : option->default_value()));
  }
  // One of the two has to be given.
  if (result_.is_null("train_batch_size") && result_.is_null("train_micro_batch_size_per_gpu")) {
    sets.emplace_back("train_micro_batch_size_per_gpu=1");
  }
  refusals_.add(
      fmt::format("{}: {} values are \"auto\", which only a surrounding framework can fill "
                  "in; put your own in the place of these defaults: --set {}",
                  source_, autos_.size(), fmt::join(sets, " ")));
}

void ConfigurationReader::check_handling(const Option& option, const json& value) const {
  if (option.handling == Handling::only_default) {
    ZERO_CHECK(value == json::parse(option.fallback),
               "{}: {} = {} is not offered: {}; leave it out or set {}", source_of(option.path),
               option.path, shown_value(value), option.help, option.fallback);
  }
  if (option.handling == Handling::unless_enabled) {
    ZERO_CHECK(!enables(value),
               "{}: {} is not offered: {}; leave it out or set {}.enabled to false",
               source_of(option.path), option.path, option.help, option.path);
  }
}

void ConfigurationReader::check_types(const char* section) {
  const std::string type = result_.text(std::string(section) + ".type");
  for (const Option& option : option_table()) {
    if (!option.path.starts_with(std::string(section) + ".params.") || option.types.empty())
      continue;
    if (std::find(option.types.begin(), option.types.end(), type) != option.types.end()) continue;
    if (!result_.given(option.path)) continue;
    refusals_.add(fmt::format("{}: {} does not belong to {}.type \"{}\" but to {}",
                              source_of(option.path), option.path, section, type,
                              fmt::join(option.types, ", ")));
  }
}

void ConfigurationReader::fill_defaults() {
  for (const Option& option : option_table()) {
    if (result_.values_.find(option.path) != result_.values_.end()) continue;
    if (option.fallback.empty()) {
      refusals_.add(fmt::format("{}: {} is missing: {}; give {}", source_, option.path, option.help,
                                expectation(option)));
    }
    result_.values_[option.path] = {option.default_value(), "default"};
  }
}

void ConfigurationReader::unknown(const std::string& path) const {
  const std::size_t dot = path.rfind('.');
  const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
  const std::string key = dot == std::string::npos ? path : path.substr(dot + 1);
  if (is_section(section)) {
    const std::string near = nearest_name(key, keys_of_section(section));
    ZERO_CHECK(near.empty(), "{}: unknown key \"{}\"; did you mean \"{}\"?", source_of(path), path,
               joined(section, near));
  }
  std::vector<std::string> last_names;
  for (const Option& option : option_table()) {
    last_names.push_back(option.path.substr(option.path.rfind('.') + 1));
  }
  const std::string near = nearest_name(key, last_names);
  if (!near.empty()) {
    const auto index = std::find(last_names.begin(), last_names.end(), near) - last_names.begin();
    fail("{}: unknown key \"{}\"; did you mean \"{}\"?", source_of(path), path,
         option_table()[static_cast<std::size_t>(index)].path);
  }
  fail("{}: unknown key \"{}\"; {} has the keys {}", source_of(path), path,
       section.empty() || !is_section(section) ? "the top level" : section,
       fmt::join(keys_of_section(is_section(section) ? section : ""), ", "));
}

Configuration Configuration::from_json(nlohmann::json tree, const std::string& source,
                                       const std::vector<std::string>& overrides) {
  return ConfigurationReader(std::move(tree), source, overrides).read();
}

}  // namespace zero
