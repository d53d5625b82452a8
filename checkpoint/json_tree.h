// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace zero {

/// Objects and lists inside each other that a file read here may have. Copying and printing a tree
/// take stack for each level, so a deeper one could end the process.
inline constexpr int kDeepestTree = 100;

/// The value of a JSON text; nothing if the text is not JSON, has a number that no double holds,
/// or is nested deeper than kDeepestTree.
std::optional<nlohmann::json> parse_json_tree(std::string_view text);

}  // namespace zero
