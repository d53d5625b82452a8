// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "launch/process/quantity.h"

namespace zero {
namespace {

std::vector<Option> make_table() {
  std::vector<Option> table = model_options();
  for (auto part : {trainer_options(), checkpoint_options(), mesh_options(), recompute_options(),
                    precision_options(), optimizer_options(), scheduler_options(), zero_options(),
                    tier_options(), fault_options(), deepspeed_options()}) {
    std::move(part.begin(), part.end(), std::back_inserter(table));
  }
  return table;
}

Option make(std::string path, ValueType type, std::string fallback, std::string help,
            Handling handling) {
  return {.path = std::move(path),
          .type = type,
          .fallback = std::move(fallback),
          .help = std::move(help),
          .handling = handling};
}

std::string plain(double value) {
  return std::floor(value) == value && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{:g}", value);
}

std::string range_text(const Option& option) {
  const bool low = std::isfinite(option.low);
  const bool high = std::isfinite(option.high);
  if (low && high) return fmt::format(" from {} to {}", plain(option.low), plain(option.high));
  if (low) return fmt::format(" from {}", plain(option.low));
  return high ? fmt::format(" up to {}", plain(option.high)) : "";
}

/// What becomes of a key that does not take effect.
std::string treatment(const Option& option) {
  switch (option.handling) {
    case Handling::honoured:
    case Handling::accepted:
      return "accepted";
    case Handling::only_default:
      return "refused unless " + option.fallback;
    case Handling::unless_enabled:
    case Handling::unless_disabled:
      return "refused unless not enabled";
  }
  return "";
}

}  // namespace

nlohmann::json Option::default_value() const {
  nlohmann::json value = fallback.empty() ? nlohmann::json() : nlohmann::json::parse(fallback);
  return from_run && value == "auto" ? nlohmann::json() : value;
}

Option honour(std::string path, ValueType type, std::string fallback, std::string help) {
  return make(std::move(path), type, std::move(fallback), std::move(help), Handling::honoured);
}

Option accept(std::string path, ValueType type, std::string fallback, std::string why) {
  return make(std::move(path), type, std::move(fallback), std::move(why), Handling::accepted);
}

Option only(std::string path, ValueType type, std::string fallback, std::string why) {
  return make(std::move(path), type, std::move(fallback), std::move(why), Handling::only_default);
}

Option unless_enabled(std::string section, std::string why) {
  return make(std::move(section), ValueType::anything, "null", std::move(why),
              Handling::unless_enabled);
}

Option unless_disabled(std::string section, std::string why) {
  return make(std::move(section), ValueType::anything, "null", std::move(why),
              Handling::unless_disabled);
}

const std::vector<Option>& option_table() {
  static const std::vector<Option> table = make_table();
  return table;
}

const Option* find_option(std::string_view path) {
  const auto& table = option_table();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Option& o) { return o.path == path; });
  return found == table.end() ? nullptr : &*found;
}

bool is_section(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  return path.empty() || std::any_of(option_table().begin(), option_table().end(),
                                     [&](const Option& o) { return o.path.starts_with(prefix); });
}

std::vector<std::string> keys_of_section(std::string_view section) {
  const std::string prefix = section.empty() ? "" : std::string(section) + ".";
  std::vector<std::string> keys;
  for (const Option& option : option_table()) {
    if (!option.path.starts_with(prefix)) continue;
    const std::string rest = option.path.substr(prefix.size());
    const std::string key = rest.substr(0, rest.find('.'));
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

std::string canonical_path(std::string_view path) {
  if (path == "bfloat16" || path.starts_with("bfloat16."))
    return "bf16" + std::string(path.substr(8));
  constexpr std::string_view kZero = "zero_optimization.";
  if (!path.starts_with(kZero)) return std::string(path);
  const std::string_view key = path.substr(kZero.size());
  // DeepSpeed takes the keys of stage 3 under the names of its code's fields too.
  static constexpr std::array<std::string_view, 9> kStage3{
      "prefetch_bucket_size",         "param_persistence_threshold",
      "model_persistence_threshold",  "max_live_parameters",
      "max_reuse_distance",           "gather_16bit_weights_on_model_save",
      "module_granularity_threshold", "use_all_reduce_for_fetch_params",
      "allgather_sequential"};
  if (std::ranges::count(kStage3, key) > 0) return fmt::format("{}stage3_{}", kZero, key);
  if (key == "stage3_gather_fp16_weights_on_model_save" ||
      key == "gather_fp16_weights_on_model_save") {
    return "zero_optimization.stage3_gather_16bit_weights_on_model_save";
  }
  if (key == "cpu_offload_params") return "zero_optimization.cpu_offload_param";
  return std::string(path);
}

std::string expectation(const Option& option) {
  if (!option.words.empty()) return option.words;
  const std::string or_null = option.takes_null() ? " or null"
                              : option.from_run   ? " or \"auto\""
                                                  : "";
  switch (option.type) {
    case ValueType::boolean:
      return "true or false" + or_null;
    case ValueType::integer:
      return "a whole number" + range_text(option) + or_null;
    case ValueType::number:
      return "a number" + range_text(option) + or_null;
    case ValueType::text:
      if (!option.choices.empty()) {
        return fmt::format("one of \"{}\"{}", fmt::join(option.choices, "\", \""), or_null);
      }
      return "a text" + or_null;
    case ValueType::text_list:
      return "a text or a list of texts" + or_null;
    case ValueType::duration:
      return "minutes as a number above 0, or a text \"HH:MM:SS\"" + or_null;
    case ValueType::bytes:
      return fmt::format(
          "bytes from 1 to 2^60: a number, or a text in {} (GB is 10^9, GiB 2^30) such as "
          "\"8GiB\"{}",
          byte_units(), or_null);
    case ValueType::betas:
      return "two numbers from 0 to below 1";
    case ValueType::anything:
      break;
  }
  return "an object or null";
}

std::string option_help() {
  std::string text = "Configuration keys (JSON file, or --set key=value):\n";
  std::string others =
      "\nKeys of DeepSpeed that are known and change nothing here, or are refused:\n";
  for (const Option& option : option_table()) {
    const std::string fallback = option.fallback.empty() ? "must be given" : option.fallback;
    const std::string types =
        option.types.empty() ? "" : fmt::format(" [{}]", fmt::join(option.types, ", "));
    if (option.handling == Handling::honoured) {
      text += fmt::format("  {:<52} {}{} ({}; default {})\n", option.path, option.help, types,
                          expectation(option), fallback);
    } else {
      others += fmt::format("  {:<52} {}: {}\n", option.path, treatment(option), option.help);
    }
  }
  return text + others;
}

}  // namespace zero
