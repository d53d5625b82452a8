// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "launch/config/configuration.h"

namespace zero {
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
  double count = 0;
  if (value.is_number()) {
    count = value.get<double>();
  } else if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    std::size_t end = 0;
    while (end < text.size() &&
           (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.')) {
      ++end;
    }
    const std::size_t unit = text.find_first_not_of(' ', end);
    static const std::vector<std::string> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    const auto found =
        std::find(kUnits.begin(), kUnits.end(), unit == std::string::npos ? "" : text.substr(unit));
    if (end == 0 || end > 18 || text[0] == '.' || found == kUnits.end()) return std::nullopt;
    if (std::count(text.begin(), text.end(), '.') > 1) return std::nullopt;
    count =
        std::ldexp(std::stod(text.substr(0, end)), 10 * static_cast<int>(found - kUnits.begin()));
  } else {
    return std::nullopt;
  }
  if (!(count >= 1 && count <= std::ldexp(1.0, 60))) return std::nullopt;
  return static_cast<std::int64_t>(count);
}

}  // namespace zero
