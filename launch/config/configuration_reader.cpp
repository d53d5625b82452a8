// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/configuration_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/json_tree.h"
#include "launch/config/checked_value.h"
#include "launch/config/similar_names.h"

namespace zero {
namespace {

using nlohmann::json;

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

/// Takes a key out of `node`; names may have dots in them. Returns whether it was there.
bool erase_key(json& node, const std::string& path) {
  if (!node.is_object()) return false;
  if (node.erase(path) > 0) return true;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const auto member = node.find(path.substr(0, dot));
    if (member != node.end() && erase_key(*member, path.substr(dot + 1))) return true;
  }
  return false;
}

}  // namespace

std::string joined_path(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

ConfigurationReader::ConfigurationReader(json tree, std::string source,
                                         std::vector<std::string> overrides, Refusals& refusals)
    : tree_(std::move(tree)),
      source_(std::move(source)),
      overrides_(std::move(overrides)),
      refusals_(refusals) {}

Configuration ConfigurationReader::read() {
  ZERO_CHECK(tree_.is_object(), "{}: found {} at the top, expected an object of sections", source_,
             shown_value(tree_));
  tree_ = canonical(tree_);
  result_.source_ = source_;
  for (const std::string& text : overrides_) refusals_.collect([&] { apply_override(text); });
  refuse_doubles();
  refuse_type("optimizer");
  refuse_type("scheduler");
  walk(tree_, "");
  fill_defaults();
  check_types("optimizer");
  check_types("scheduler");
  refuse_autos();
  return std::move(result_);
}

/// The file's object with the table's names of keys, each in its section, without remarks.
json ConfigurationReader::canonical(const json& object) {
  json result = json::object();
  for (const auto& [key, value] : object.items()) add(result, {"", key, value, key});
  return result;
}

/// Adds a member to the object of its section.
void ConfigurationReader::add(json& into, const Member& member) {
  if (is_remark(member.key)) {
    result_.remarks_.push_back(member.as_in_file);
    return;
  }
  const std::string path = canonical_path(joined_path(member.section, member.key));
  const std::string name = member.section.empty() ? path : path.substr(member.section.size() + 1);
  if (add_dotted(into, name, member)) return;
  const bool there = into.contains(name);
  if (!there && path != member.as_in_file) result_.spellings_[path] = member.as_in_file;
  json& slot = into[name];
  const bool is_plain_section = is_section(path) && find_option(path) == nullptr;
  if (is_plain_section && member.value.is_object()) {
    if (!there) slot = json::object();
    if (!slot.is_object()) return;  // refused as no section
    for (const auto& [key, value] : member.value.items()) {
      add(slot, {path, key, value, joined_path(member.as_in_file, key)});
    }
  } else if (!there) {
    slot = member.value;
  } else if (!is_plain_section) {
    merge(slot, member.value, path, member.as_in_file);
  } else if (!member.value.is_null()) {
    slot = member.value;  // to be refused as no section
    if (path != member.as_in_file) result_.spellings_[path] = member.as_in_file;
  }
}

/// Adds "fp16.enabled" as "enabled" of the section "fp16", as --set would. Returns whether there is
/// such a section.
bool ConfigurationReader::add_dotted(json& into, const std::string& name, const Member& member) {
  const std::size_t dot = name.find('.');
  const bool parts = dot != std::string::npos && dot > 0 && dot + 1 < name.size();
  if (!parts || std::ranges::count(name, '.') > kDeepestTree) return false;
  const std::string head = name.substr(0, dot);
  const std::string path = joined_path(member.section, head);
  const bool free = takes_anything(path);
  if (!free && !is_section(path)) return false;
  json& child = into[head];
  if (path == "model" && child.is_string()) child = json{{"name", child}};
  if (child.is_null()) child = json::object();
  const std::string rest = name.substr(dot + 1);
  if (child.is_object()) {
    add(child, {path, rest, member.value, member.as_in_file});
  } else if (free) {
    given_twice(path, child, json{{rest, member.value}}, member.as_in_file);
  }
  return true;
}

/// Puts what the file has a second time into what it has.
void ConfigurationReader::merge(json& slot, const json& value, const std::string& path,
                                const std::string& as_in_file) {
  if (slot == value) return;
  if (!slot.is_object() || !value.is_object()) {
    given_twice(path, slot, value, as_in_file);
    return;
  }
  for (const auto& [key, member] : value.items()) {
    if (slot.contains(key)) {
      merge(slot[key], member, joined_path(path, key), joined_path(as_in_file, key));
    } else {
      slot[key] = member;
    }
  }
}

void ConfigurationReader::given_twice(const std::string& path, const json& first,
                                      const json& second, const std::string& as_in_file) {
  if (find_option(path) == nullptr && !takes_anything(path)) return;  // refused as unknown
  const auto written = result_.spellings_.find(path);
  std::string other = as_in_file;
  if (written != result_.spellings_.end()) {
    other = written->second;
    result_.spellings_.erase(written);
  }
  doubles_.push_back({path, first,
                      fmt::format("{}: {} is given twice{}, as {} and as {}; keep one of them",
                                  source_, path, other == path ? "" : ", also as " + other,
                                  shown_value(first), shown_value(second))});
}

/// Refuses what the file gives twice, unless --set gives it once and for all.
void ConfigurationReader::refuse_doubles() {
  for (Double& found : doubles_) {
    if (!in_file(found.path)) continue;
    refusals_.add(std::move(found.message), answer_of(found.path, found.first));
  }
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
  if (value.is_null() && (option == nullptr || !option->takes_null()) && !takes_anything(path)) {
    const auto is_path = [&](const std::string& key) { return canonical_path(key) == path; };
    const bool was_there = erase_key(tree_, path) || std::erase_if(result_.remarks_, is_path) > 0;
    if (!was_there && option == nullptr && !is_section(path)) unknown(path, value);
    return;
  }
  json* node = &tree_;
  std::string section;
  std::size_t begin = 0;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    const std::string key = path.substr(begin, dot - begin);
    section = joined_path(section, key);
    if (!is_section(section) && !takes_anything(section)) unknown(path, value);
    json& child = (*node)[key];
    if (section == "model" && child.is_string()) child = json{{"name", child}};
    if (child.is_null()) child = json::object();
    ZERO_CHECK(child.is_object(),
               "--set {}: {} is {} in {}, not a section; give --set {}=null before it", text,
               section, shown_value(child), source_, section);
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
  for (const auto& [key, member] : object.items()) {
    const std::string path = joined_path(section, key);
    const json& value = member;
    if (const Option* option = find_option(path); option != nullptr) {
      refusals_.collect([&] { take(*option, value); });
    } else if (path == "model" && value.is_string()) {
      refusals_.collect([&] { take(*find_option("model.name"), value); });
    } else if (key.empty() || !is_section(path)) {
      refusals_.collect([&] { unknown(path, value); });
    } else if (value.is_object()) {
      walk(value, path);
    } else {
      refusals_.collect([&] { check_section(path, value); });
    }
  }
}

void ConfigurationReader::take(const Option& option, json value) {
  std::string source = source_of(option.path);
  const bool a_choice = std::ranges::count(option.choices, "auto") > 0;
  // A refused value counts as the one in the answer, a refused key as absent, for later checks.
  result_.values_[option.path] = {option.default_value(), source};
  if (value == "auto" && !a_choice && option.type != ValueType::anything) {
    value = checked_auto(option);
    if (autos_.empty() || autos_.back() != &option) source += " (auto)";
  } else {
    value = checked_value(option, value, source);
  }
  if (!refusals_.collect([&] { check_handling(option, value); })) {
    result_.values_[option.path] = {option.default_value(), "default"};
    return;
  }
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

void ConfigurationReader::check_types(const char* section) {
  const std::string type = result_.text(std::string(section) + ".type");
  for (const Option& option : option_table()) {
    if (!option.path.starts_with(std::string(section) + ".params.") || option.types.empty())
      continue;
    if (std::find(option.types.begin(), option.types.end(), type) != option.types.end()) continue;
    if (!result_.given(option.path)) continue;
    std::erase(autos_, &option);
    refusals_.add(
        fmt::format("{}: {} does not belong to {}.type \"{}\" but to {}", source_of(option.path),
                    option.path, section, type, fmt::join(option.types, ", ")),
        answers_in_file(option.path, removal_of(option.path)));
  }
}

void ConfigurationReader::fill_defaults() {
  for (const Option& option : option_table()) {
    if (result_.values_.find(option.path) != result_.values_.end()) continue;
    if (option.fallback.empty()) {
      refusals_.add(fmt::format("{}: {} is missing: {}; give {}", source_, option.path, option.help,
                                expectation(option)),
                    {default_override(option)});
    }
    result_.values_[option.path] = {option.default_value(), "default"};
  }
}

Configuration Configuration::from_json(nlohmann::json tree, const std::string& source,
                                       const std::vector<std::string>& overrides,
                                       Refusals* refusals) {
  Refusals own;
  Refusals& all = refusals == nullptr ? own : *refusals;
  Configuration values = ConfigurationReader(std::move(tree), source, overrides, all).read();
  own.raise(values);
  return values;
}

}  // namespace zero
