// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <numeric>
#include <vector>

namespace zero {

/// first, first + 1, ...: `count` numbers, such as the ranks of a group.
template <std::integral Number>
std::vector<Number> consecutive(Number first, std::integral auto count) {
  std::vector<Number> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace zero
