// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/checked_value.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

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

[[noreturn]] void mismatch(const Option& option, const json& value, const std::string& source) {
  const bool has_default = !option.fallback.empty() && option.fallback != "null";
  // --set answers what a file says, not another --set.
  throw Refusal(
      fmt::format("{}: {}: found {}, expected {}{}", source, option.path, shown_value(value),
                  expectation(option), has_default ? "; the default is " + option.fallback : ""),
      source == "--set" ? std::vector<std::string>{}
                        : std::vector<std::string>{default_override(option)});
}

json checked_number(const Option& option, const json& value, const std::string& source) {
  if (!value.is_number()) mismatch(option, value, source);
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < option.low || number > option.high)
    mismatch(option, value, source);
  if (option.type == ValueType::number) return number;
  if (value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<std::uint64_t>() >> 63U != 0)) {
    return value.get<std::int64_t>();
  }
  // 5e8 is a float in JSON but a whole number here; a count must be below 2^63.
  if (number != std::floor(number) || std::abs(number) >= 9223372036854775807.0)
    mismatch(option, value, source);
  return static_cast<std::int64_t>(number);
}

}  // namespace

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

json checked_value(const Option& option, const json& value, const std::string& source) {
  if (value.is_null()) {
    if (!option.takes_null()) mismatch(option, value, source);
    return value;
  }
  // DeepSpeed's "number_checkpoints": false.
  if (option.path == "activation_checkpointing.number_checkpoints" && value == json(false)) {
    return json();
  }
  switch (option.type) {
    case ValueType::boolean:
      if (!value.is_boolean()) mismatch(option, value, source);
      return value;
    case ValueType::integer:
    case ValueType::number:
      return checked_number(option, value, source);
    case ValueType::text: {
      if (!value.is_string() || value.get<std::string>().empty()) mismatch(option, value, source);
      if (option.choices.empty()) return value;
      const std::string text = as_listed(value.get<std::string>(), option.choices);
      if (std::find(option.choices.begin(), option.choices.end(), text) == option.choices.end()) {
        mismatch(option, value, source);
      }
      return text;
    }
    case ValueType::text_list: {
      const auto is_text = [](const json& v) {
        return v.is_string() && !v.get<std::string>().empty();
      };
      const bool list =
          value.is_array() && !value.empty() && std::all_of(value.begin(), value.end(), is_text);
      if (!is_text(value) && !list) mismatch(option, value, source);
      return value;
    }
    case ValueType::duration:
      if (!seconds_of(value)) mismatch(option, value, source);
      return value;
    case ValueType::bytes:
      if (!bytes_of(value)) mismatch(option, value, source);
      return value;
    case ValueType::betas: {
      const auto is_beta = [](const json& v) { return v.is_number() && v >= 0.0 && v < 1.0; };
      const bool two =
          value.is_array() && value.size() == 2 && is_beta(value[0]) && is_beta(value[1]);
      if (!two) mismatch(option, value, source);
      return value;
    }
    case ValueType::anything:
      return value;
  }
  return value;
}

}  // namespace zero
