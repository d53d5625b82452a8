// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace zero {

/// The merges of byte-pair encoding: pairs of tokens that become one, the first added first.
class Merges {
 public:
  void add(std::uint32_t left, std::uint32_t right, std::uint32_t merged);
  /// Merges neighbours in `tokens`, the pair added first and then the leftmost first, until no pair
  /// can be. Takes O(n log n) time for n tokens.
  void apply(std::vector<std::uint32_t>& tokens) const;

 private:
  struct Merge {
    std::uint32_t rank;
    std::uint32_t merged;
  };
  const Merge* find(std::uint32_t left, std::uint32_t right) const;

  std::uint32_t count_ = 0;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by both ids
};

}  // namespace zero
