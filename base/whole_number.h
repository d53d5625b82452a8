// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace zero {

/// All of `text` as a whole number in [least, most], nothing but digits and a minus sign; nothing
/// if it is none.
template <std::integral Number>
std::optional<Number> whole_number(std::string_view text, std::type_identity_t<Number> least,
                                   Number most) {
  Number value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc{} || end != last || value < least || value > most) return std::nullopt;
  return value;
}

/// The whole number that `text` begins with; nothing if it begins with none.
inline std::optional<std::int64_t> leading_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::optional(value) : std::nullopt;
}

/// The whole number behind `key` and spaces at the start of a line, as files of /proc have it;
/// nothing if there is none.
inline std::optional<std::int64_t> number_behind(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; (at = text.find(key, at)) != std::string_view::npos; at += key.size()) {
    if (at > 0 && text[at - 1] != '\n') continue;
    const std::size_t digit = text.find_first_not_of(" \t", at + key.size());
    return digit == std::string_view::npos ? std::nullopt : leading_number(text.substr(digit));
  }
  return std::nullopt;
}

}  // namespace zero
