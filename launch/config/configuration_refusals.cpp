// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What a reader refuses, and how --set answers it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>

#include "launch/config/answers.h"
#include "launch/config/checked_value.h"
#include "launch/config/configuration_reader.h"
#include "launch/config/similar_names.h"

namespace zero {

using nlohmann::json;

namespace {

/// Whether "enabled" of an object switches it on.
bool is_on(const json& enabled) { return !enabled.is_null() && boolean_of(enabled) != false; }

/// Whether a value of another program's section, or of a part of it, switches that on.
bool enables(const json& value) {
  if (!value.is_object()) return is_on(value);
  if (value.contains("enabled")) return is_on(value["enabled"]);
  return std::ranges::any_of(value,
                             [](const json& part) { return part.is_object() && enables(part); });
}

/// The same of a section that is on wherever it is there.
bool enables_by_presence(const json& value) {
  return value.is_object() && value.contains("enabled") ? is_on(value["enabled"]) : is_on(value);
}

/// A number above 0 of an object.
std::optional<double> positive(const json& params, const char* key) {
  const auto found = params.find(key);
  if (found == params.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return value > 0 && value < 1e15 ? std::optional(value) : std::nullopt;
}

/// The parameters of DeepSpeed's OneCycle as those of the nearest schedule of ours: up to its
/// highest rate and down again. What our keys cannot have is left out.
std::vector<KeyValue> linear_like_one_cycle(const json& params) {
  std::vector<KeyValue> values{{"scheduler.params", json()}, {"scheduler.type", "linear"}};
  if (!params.is_object()) return values;
  const std::string prefix = "scheduler.params.";
  const auto up = positive(params, "cycle_first_step_size");
  if (up) {
    const double down = positive(params, "cycle_second_step_size").value_or(*up);
    const KeyValue warmup{prefix + "warmup_num_steps", std::llround(*up)};
    const KeyValue total{prefix + "total_num_steps", std::llround(*up + down)};
    if (fits_option(warmup) && fits_option(total)) values.insert(values.end(), {warmup, total});
  }
  const auto high = positive(params, "cycle_max_lr");
  if (!high) return values;
  const auto low = positive(params, "cycle_min_lr");
  const KeyValue ratio{prefix + "min_ratio", low.value_or(0) / *high};
  const KeyValue rate{"optimizer.params.lr", *high};
  if (low && fits_option(ratio)) values.push_back(ratio);
  if (fits_option(rate)) values.push_back(rate);
  return values;
}

}  // namespace

bool fits_option(const KeyValue& given) {
  const Option& option = *find_option(given.path);
  return Refusals().collect([&] { checked_value(option, given.value, ""); });
}

bool is_offered(const Option& option, const json& value) {
  switch (option.handling) {
    case Handling::only_default:
      return value == json::parse(option.fallback);
    case Handling::unless_enabled:
      return !enables(value);
    case Handling::unless_disabled:
      return !enables_by_presence(value);
    case Handling::honoured:
    case Handling::accepted:
      break;
  }
  return true;
}

std::optional<KeyValue> member_meant(const std::string& section, const json& value) {
  for (const char* const key : {"enabled", "device", "type", "stage"}) {
    const Option* const option = find_option(joined_path(section, key));
    if (option == nullptr) continue;
    const bool stage = option->type == ValueType::integer && value.is_boolean();
    const KeyValue given{option->path, stage ? json(value == true ? 1 : 0) : value};
    if (!fits_option(given)) continue;
    const json checked = checked_value(*option, given.value, "");
    if (checked != option->default_value()) return KeyValue{option->path, checked};
  }
  return std::nullopt;
}

/// A section may be null, which is to say absent.
void ConfigurationReader::check_section(const std::string& path, const json& value) {
  if (value.is_null()) return;
  const auto written = result_.spellings_.find(path);
  const std::string& name = written == result_.spellings_.end() ? path : written->second;
  const std::string keys = fmt::format("{}", fmt::join(keys_of_section(path), ", "));
  std::vector<std::string> sets = removal_of(name);
  if (value == "auto") {
    throw Refusal(fmt::format("{}: {} is \"auto\"; give an object with keys {}, or leave it out",
                              source_of(path), name, keys),
                  answers_in_file(path, sets));
  }
  const std::string example =
      path == "zero_optimization" ? "; write \"zero_optimization\": {\"stage\": 1}" : "";
  if (const auto meant = member_meant(path, value); meant && in_file(path)) {
    take(*find_option(meant->path), meant->value);
    sets.push_back(override_of(name + meant->path.substr(path.size()), meant->value));
  }
  throw Refusal(fmt::format("{}: {}: found {}, expected an object with keys {}{}", source_of(path),
                            name, shown_value(value), keys, example),
                answers_in_file(path, sets));
}

/// An answer to a refusal can undo what a file says, not another --set.
std::vector<std::string> ConfigurationReader::answers_in_file(const std::string& path,
                                                              std::vector<std::string> sets) const {
  return in_file(path) ? std::move(sets) : std::vector<std::string>{};
}

/// One message for all, with what can be copied after the command.
void ConfigurationReader::refuse_autos() {
  if (autos_.empty()) return;
  std::vector<std::string> paths;
  std::vector<std::string> sets;
  for (const Option* option : autos_) {
    // null is DeepSpeed's 1000, more than many a run has.
    const std::int64_t tenth = std::max<std::int64_t>(1, result_.integer("run.steps") / 10);
    paths.push_back(option->path);
    sets.push_back(option->path == "scheduler.params.warmup_num_steps"
                       ? override_of(option->path, tenth)
                       : default_override(*option));
  }
  const Option& first = *autos_.front();
  if (autos_.size() == 1) {
    refusals_.add(
        fmt::format("{}: {} is \"auto\", which only a surrounding framework can fill in; give {}, "
                    "for example",
                    source_of(first.path), first.path, expectation(first)),
        std::move(sets));
    return;
  }
  refusals_.add(fmt::format("{}: {} values are \"auto\", which only a surrounding framework can "
                            "fill in; give your own, for example the defaults, for {}",
                            source_of(first.path), autos_.size(), fmt::join(paths, ", ")),
                std::move(sets));
}

void ConfigurationReader::check_handling(const Option& option, const json& value) const {
  if (is_offered(option, value)) return;
  const std::string who = source_of(option.path) + ": " + option.path;
  if (option.handling == Handling::only_default) {
    throw Refusal(fmt::format("{} = {} is not offered: {}; set {} or leave it out", who,
                              shown_value(value), option.help, option.fallback),
                  answers_in_file(option.path, removal_with_section(option.path)));
  }
  throw Refusal(fmt::format("{} is not offered: {}; set {}.enabled to false or leave it out", who,
                            option.help, option.path),
                answers_in_file(option.path, removal_of(option.path)));
}

/// Takes out of the tree the parameters of `section` that `type`'s default has not. Returns them.
std::vector<std::string> ConfigurationReader::take_out_strangers(const std::string& section,
                                                                 const Option& type) {
  json& object = tree_[section];
  object.erase("type");
  std::vector<std::string> strangers;
  if (!object.contains("params") || !object["params"].is_object()) return strangers;
  const std::string fallback = type.default_value();
  json kept = json::object();
  for (const auto& [key, value] : object["params"].items()) {
    const std::string path = section + ".params." + key;
    const Option* const option = find_option(path);
    if (option != nullptr &&
        (option->types.empty() || std::ranges::count(option->types, fallback) > 0)) {
      kept[key] = value;
    } else {
      strangers.push_back(path);
    }
  }
  object["params"] = std::move(kept);
  return strangers;
}

/// One refusal of a type that there is not and of the parameters that go with it.
void ConfigurationReader::refuse_type(const std::string& section) {
  if (!tree_.contains(section) || !tree_[section].is_object()) return;
  const std::string path = section + ".type";
  const Option& option = *find_option(path);
  const json type = tree_[section].value("type", json());
  if (!type.is_string() || type == "auto") return;
  const std::string name = as_listed(type.get<std::string>(), option.choices);
  if (std::ranges::count(option.choices, name) > 0) return;
  const json params = tree_[section].value("params", json());
  const std::vector<std::string> strangers = take_out_strangers(section, option);
  const bool one_cycle = path == "scheduler.type" && type == "OneCycle";
  std::string message =
      fmt::format("{}: {}: found {}, expected {}; the default is {}", source_of(path), path,
                  shown_value(type), expectation(option), option.fallback);
  if (one_cycle) {
    message = fmt::format(
        "{}: {} \"OneCycle\" is not offered: it also changes momentum. \"linear\" goes up and down "
        "as it does; expected {}",
        source_of(path), path, expectation(option));
  }
  if (!strangers.empty()) {
    message += fmt::format(". To {} belong {}", shown_value(type), fmt::join(strangers, ", "));
  }
  std::vector<std::string> sets{default_override(option)};
  std::vector<std::string> nameless;
  for (const std::string& stranger : strangers) {
    std::vector<std::string> removal = removal_of(stranger);
    if (removal.empty()) nameless.push_back(stranger);
    std::ranges::move(removal, std::back_inserter(sets));
  }
  if (!nameless.empty()) {
    message += fmt::format("; no option can name {}: edit {}", fmt::join(nameless, ", "), source_);
  }
  if (one_cycle) sets = put_one_cycle(params);
  refusals_.add(message, answers_in_file(path, std::move(sets)));
}

/// Puts the schedule that answers a OneCycle into the tree, for later checks to see what the next
/// start will. Returns its overrides.
std::vector<std::string> ConfigurationReader::put_one_cycle(const json& params) {
  std::vector<std::string> sets;
  for (const KeyValue& given : linear_like_one_cycle(params)) {
    const bool own = given.path.starts_with("scheduler.") || in_file(given.path);
    const std::string set = override_of(given.path, given.value);
    Refusals unfit;
    if (own && unfit.collect([&] { put(given.path, given.value, set); })) sets.push_back(set);
  }
  return sets;
}

}  // namespace zero
