// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace zero {

/// Nesting depth of objects and lists that a file may have. Copying and printing a tree take stack
/// for each level, so a deeper tree could end the process.
inline constexpr int kDeepestTree = 100;

// The readers below take linear time for any text. The library's own take quadratic time for a list
// of objects with a callback, and for an ordered object of many fields.

/// The value of a JSON text; nothing if the text is not JSON, has a number outside the range of a
/// double, or is nested deeper than kDeepestTree.
std::optional<nlohmann::json> parse_json_tree(std::string_view text);
/// Likewise; objects keep the order of their fields.
std::optional<nlohmann::ordered_json> parse_ordered_tree(std::string_view text);

/// A JSON text and the fault in it, for a message.
struct ReadJson {
  enum class Outcome : std::uint8_t { good, not_json, bad_number, deep, key_twice };
  Outcome outcome = Outcome::good;
  nlohmann::json value{};
  std::size_t byte = 0;  ///< not_json: where, from 1
  std::string what{};    ///< not_json, bad_number: the library's message; key_twice: the key
};
ReadJson read_json(std::string_view text);

}  // namespace zero
