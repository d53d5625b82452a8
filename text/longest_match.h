// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace zero {

/// Finds at each place of a text the longest of some patterns that begins there: an automaton of
/// Aho and Corasick over the patterns read backwards, which is run over the text from its end.
/// Takes time in proportion to the bytes of the patterns to build, and of the text to run.
class LongestMatch {
 public:
  struct Match {
    std::size_t begin;
    std::uint32_t pattern;  ///< its index
  };

  LongestMatch() = default;
  /// Patterns are not empty, and differ.
  explicit LongestMatch(const std::vector<std::string_view>& patterns);

  /// The longest match at each place that has one, the last place first.
  std::vector<Match> find(std::string_view text) const;

 private:
  using Node = std::uint32_t;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct State {
    Node fallback = 0;              ///< of the longest end of the node's bytes that is a node's
    std::uint32_t pattern = kNone;  ///< the longest that ends the node's bytes
  };

  Node child(Node node, unsigned char byte) const;
  Node step(Node node, unsigned char byte) const;
  Node add_child(Node node, unsigned char byte);

  std::vector<State> states_;
  std::array<Node, 256> first_{};                  ///< the root's children; 0: none
  std::unordered_map<std::uint64_t, Node> edges_;  ///< the others', by node and byte
};

}  // namespace zero
