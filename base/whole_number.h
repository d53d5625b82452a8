// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
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

}  // namespace zero
