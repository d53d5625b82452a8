// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace zero {

/// Nesting depth of objects and lists that a file may have. Copying and printing a tree take stack
/// for each level, so a deeper tree could end the process.
inline constexpr int kDeepestTree = 100;

/// The value of a JSON text; nothing if the text is not JSON, has a number outside the range of a
/// double, or is nested deeper than kDeepestTree.
std::optional<nlohmann::json> parse_json_tree(std::string_view text);
/// Likewise; objects keep the order of their fields.
std::optional<nlohmann::ordered_json> parse_ordered_tree(std::string_view text);

}  // namespace zero
