// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "text/longest_match.h"

#include <queue>

namespace zero {
namespace {

std::uint64_t edge(std::uint32_t node, unsigned char byte) {
  return std::uint64_t{node} << 8U | byte;
}

}  // namespace

LongestMatch::LongestMatch(const std::vector<std::string_view>& patterns) {
  states_.emplace_back();
  for (std::uint32_t i = 0; i < patterns.size(); ++i) {
    Node node = 0;
    for (std::size_t at = patterns[i].size(); at > 0; --at) {
      node = add_child(node, static_cast<unsigned char>(patterns[i][at - 1]));
    }
    states_[node].pattern = i;
  }
  std::vector<std::vector<std::pair<unsigned char, Node>>> children(states_.size());
  std::queue<Node> open;  // nodes of fewer bytes come first
  for (const auto& [key, node] : edges_) {
    children[key >> 8U].emplace_back(static_cast<unsigned char>(key & 0xffU), node);
  }
  for (const Node node : first_) {
    if (node != 0) open.push(node);
  }
  for (; !open.empty(); open.pop()) {
    const Node node = open.front();
    State& state = states_[node];
    if (state.pattern == kNone) state.pattern = states_[state.fallback].pattern;
    for (const auto& [byte, next] : children[node]) {
      states_[next].fallback = step(state.fallback, byte);
      open.push(next);
    }
  }
}

LongestMatch::Node LongestMatch::child(Node node, unsigned char byte) const {
  if (node == 0) return first_[byte];
  const auto found = edges_.find(edge(node, byte));
  return found == edges_.end() ? 0 : found->second;
}

LongestMatch::Node LongestMatch::step(Node node, unsigned char byte) const {
  for (;; node = states_[node].fallback) {
    const Node next = child(node, byte);
    if (next != 0 || node == 0) return next;
  }
}

LongestMatch::Node LongestMatch::add_child(Node node, unsigned char byte) {
  if (const Node known = child(node, byte); known != 0) return known;
  const auto added = static_cast<Node>(states_.size());
  states_.emplace_back();
  (node == 0 ? first_[byte] : edges_[edge(node, byte)]) = added;
  return added;
}

std::vector<LongestMatch::Match> LongestMatch::find(std::string_view text) const {
  std::vector<Match> matches;
  if (states_.empty()) return matches;
  Node node = 0;
  for (std::size_t at = text.size(); at > 0; --at) {
    node = step(node, static_cast<unsigned char>(text[at - 1]));
    if (states_[node].pattern != kNone) matches.push_back({at - 1, states_[node].pattern});
  }
  return matches;
}

}  // namespace zero
