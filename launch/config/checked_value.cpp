// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/checked_value.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/json_tree.h"
#include "base/whole_number.h"
#include "launch/config/answers.h"
#include "launch/config/configuration.h"
#include "launch/config/refusals.h"
#include "launch/config/similar_names.h"
#include "launch/process/quantity.h"

namespace zero {

using nlohmann::json;

namespace {

constexpr double kMostSeconds = 1e9;

/// The value of a few decimal digits; nothing if another character is among them.
std::optional<int> number_of(std::string_view digits) {
  int value = 0;
  for (const char digit : digits) {
    if (std::isdigit(static_cast<unsigned char>(digit)) == 0) return std::nullopt;
    value = 10 * value + (digit - '0');
  }
  return value;
}

/// The number that a text has; `value` itself if it is no such text.
json number_in(const json& value) {
  if (!value.is_string()) return value;
  std::string_view text = value.get_ref<const std::string&>();
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  if (text.starts_with('+')) text.remove_prefix(1);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (const auto whole = whole_number<std::int64_t>(text, -kMost, kMost)) return *whole;
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  return error == std::errc{} && end == last ? json(number) : value;
}

/// The list that a text has, with its members' numbers; `value` itself if it is no list.
json numbers_in(const json& value) {
  json list = value;
  if (value.is_string()) {
    list = parse_json_tree(value.get_ref<const std::string&>()).value_or(json());
  }
  if (!list.is_array()) return value;
  std::ranges::transform(list, list.begin(), number_in);
  return list;
}

[[noreturn]] void mismatch(const Option& option, const json& value, const std::string& source) {
  const bool has_default = !option.fallback.empty() && option.fallback != "null";
  // --set answers what a file says, not another --set.
  throw Refusal(
      fmt::format("{}: {}: found {}, expected {}{}", source, option.path, shown_value(value),
                  expectation(option), has_default ? "; the default is " + option.fallback : ""),
      source == "--set" ? std::vector<std::string>{}
                        : std::vector<std::string>{default_override(option)});
}

json checked_number(const Option& option, const json& given, const std::string& source) {
  const json value = number_in(given);
  if (!value.is_number()) mismatch(option, given, source);
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < option.low || number > option.high)
    mismatch(option, given, source);
  if (option.type == ValueType::number) return number;
  if (value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<std::uint64_t>() >> 63U != 0)) {
    return value.get<std::int64_t>();
  }
  // 5e8 is a float in JSON but a whole number here; a count must be below 2^63.
  if (number != std::floor(number) || std::abs(number) >= 9223372036854775807.0)
    mismatch(option, given, source);
  return static_cast<std::int64_t>(number);
}

}  // namespace

std::optional<bool> boolean_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value == 0) return false;
  if (value == 1) return true;
  if (!value.is_string()) return std::nullopt;
  static const std::vector<std::string> no{"false", "0", "no", "n", "off", "f"};
  static const std::vector<std::string> yes{"true", "1", "yes", "y", "on", "t"};
  const std::string& text = value.get_ref<const std::string&>();
  if (std::ranges::count(no, as_listed(text, no)) > 0) return false;
  if (std::ranges::count(yes, as_listed(text, yes)) > 0) return true;
  return std::nullopt;
}

std::optional<double> seconds_of(const nlohmann::json& value) {
  if (value.is_number()) {
    const double seconds = 60 * value.get<double>();
    return seconds > 0 && seconds <= kMostSeconds ? std::optional(seconds) : std::nullopt;
  }
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  const std::size_t colon = text.find(':');
  if (colon == 0 || colon > 4 || text.size() != colon + 6 || text[colon + 3] != ':') {
    return std::nullopt;
  }
  const auto hours = number_of(text.substr(0, colon));
  const auto minutes = number_of(text.substr(colon + 1, 2));
  const auto seconds = number_of(text.substr(colon + 4));
  if (!hours || !minutes || !seconds || *minutes > 59 || *seconds > 59) return std::nullopt;
  const int all = 3600 * *hours + 60 * *minutes + *seconds;
  return all > 0 ? std::optional<double>(all) : std::nullopt;
}

std::optional<std::int64_t> bytes_of(const nlohmann::json& value) {
  if (value.is_string()) return size_in_bytes(value.get_ref<const std::string&>());
  if (!value.is_number()) return std::nullopt;
  const double count = value.get<double>();
  if (!(count >= 1 && count <= std::ldexp(1.0, 60))) return std::nullopt;
  return static_cast<std::int64_t>(count);
}

std::string shown_value(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 57) + "..." : text;
}

json checked_value(const Option& option, const json& given, const std::string& source) {
  if (given.is_null()) {
    if (!option.takes_null()) mismatch(option, given, source);
    return given;
  }
  // DeepSpeed's "number_checkpoints": false.
  if (option.path == "activation_checkpointing.number_checkpoints" && given == json(false)) {
    return json();
  }
  const auto held_to = [&](bool fits, json value) {
    if (!fits) mismatch(option, given, source);
    return value;
  };
  const auto is_text = [](const json& v) { return v.is_string() && !v.get<std::string>().empty(); };
  switch (option.type) {
    case ValueType::boolean: {
      const std::optional<bool> value = boolean_of(given);
      return held_to(value.has_value(), value.value_or(false));
    }
    case ValueType::integer:
    case ValueType::number:
      return checked_number(option, given, source);
    case ValueType::text: {
      if (!is_text(given) || option.choices.empty()) return held_to(is_text(given), given);
      const std::string text = as_listed(given.get<std::string>(), option.choices);
      return held_to(std::ranges::count(option.choices, text) > 0, text);
    }
    case ValueType::text_list:
      return held_to(is_text(given) || (given.is_array() && !given.empty() &&
                                        std::all_of(given.begin(), given.end(), is_text)),
                     given);
    case ValueType::duration:
      return held_to(seconds_of(given).has_value(), given);
    case ValueType::bytes:
      return held_to(bytes_of(given).has_value(), given);
    case ValueType::betas: {
      const json value = numbers_in(given);
      const auto is_beta = [](const json& v) { return v.is_number() && v >= 0.0 && v < 1.0; };
      return held_to(
          value.is_array() && value.size() == 2 && is_beta(value[0]) && is_beta(value[1]), value);
    }
    case ValueType::anything:
      return given;
  }
  return given;
}

}  // namespace zero
