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
/// many as the longest list has values: combination i has value i of each list. A list that ends
/// begins again, list k of them (from 0) k values further, so that each value is in one and lists
/// of one length do not stay in step.
template <typename... T>
std::vector<std::tuple<T...>> combinations(bool diagonal, std::initializer_list<T>... lists) {
  std::vector<std::tuple<T...>> all;
  const std::size_t count = diagonal ? std::max({lists.size()...}) : (lists.size() * ...);
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t left = i;
    std::size_t k = 0;
    const auto value = [&](auto list) {
      const std::size_t number =
          diagonal ? i + k++ * (i / list.size()) : std::exchange(left, left / list.size());
      return list.begin()[number % list.size()];
    };
    all.push_back(std::tuple<T...>{value(lists)...});  // braces: from left to right
  }
  return all;
}

/// The cases of a test that looks at bits, which every case may have wrong, beside races, which a
/// few cases show: all combinations, but with ThreadSanitizer those of the diagonal, unless all are
/// asked for. What is left out there are other pairs of values, as a type of moments with another
/// stage: each stage, world, mesh, type, place and direction still is in a case, and so are the
/// threads, streams and waits that it has. Lists begin with what has most of these.
template <typename... T>
std::vector<std::tuple<T...>> cases_of(std::initializer_list<T>... lists) {
  return combinations(kThreadSanitizer && !long_tests(), lists...);
}

}  // namespace zero::testing
