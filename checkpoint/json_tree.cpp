// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_tree.h"

#include <utility>

namespace zero {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

template <typename Tree>
std::optional<Tree> parse(std::string_view text) {
  bool deep = false;
  const auto watch = [&](int depth, typename Tree::parse_event_t, Tree&) {
    deep = deep || depth > kDeepestTree;
    return !deep;  // refused parts are dropped, so no deep tree is built
  };
  Tree tree = Tree::parse(text, watch, false);
  if (deep || tree.is_discarded()) return std::nullopt;
  return tree;
}

}  // namespace

std::optional<json> parse_json_tree(std::string_view text) { return parse<json>(text); }

std::optional<ordered_json> parse_ordered_tree(std::string_view text) {
  return parse<ordered_json>(text);
}

}  // namespace zero
