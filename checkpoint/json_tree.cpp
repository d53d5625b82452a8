// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_tree.h"

#include <utility>

namespace zero {

using nlohmann::json;

std::optional<json> parse_json_tree(std::string_view text) {
  bool deep = false;
  const auto watch = [&](int depth, json::parse_event_t, json&) {
    deep = deep || depth > kDeepestTree;
    return !deep;  // refused parts are dropped, so no deep tree is built
  };
  json tree = json::parse(text, watch, false);
  if (deep || tree.is_discarded()) return std::nullopt;
  return tree;
}

}  // namespace zero
