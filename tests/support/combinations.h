// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/long_tests.h"

namespace zero::testing {

/// Whether this is a build with ThreadSanitizer, in which tests take many times as long.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#else
inline constexpr bool kThreadSanitizer = false;
#endif

/// All combinations of a value of each list, the first list's changing fastest. With `diagonal` as
/// many as the longest list has values: combination i has value i of each list, which begin again
/// when they end, so that each value is in one.
template <typename... T>
std::vector<std::tuple<T...>> combinations(bool diagonal, std::initializer_list<T>... lists) {
  std::vector<std::tuple<T...>> all;
  const std::size_t count = diagonal ? std::max({lists.size()...}) : (lists.size() * ...);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t left = i;
    const auto value = [&](auto list) {
      const std::size_t number = diagonal ? i : std::exchange(left, left / list.size());
      return list.begin()[number % list.size()];
    };
    all.push_back(std::tuple<T...>{value(lists)...});  // braces: from left to right
  }
  return all;
}

/// The cases of a test that looks at bits, which single cases show, beside races, which a few do:
/// all combinations, but those of the diagonal with ThreadSanitizer, unless all are asked for.
template <typename... T>
std::vector<std::tuple<T...>> cases_of(std::initializer_list<T>... lists) {
  return combinations(kThreadSanitizer && !long_tests(), lists...);
}

}  // namespace zero::testing
