// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/value_hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "base/sign_of_life.h"

namespace zero {
namespace {

/// 40 MiB.
std::vector<float> large_values() {
  std::vector<float> values(10 << 20);
  std::iota(values.begin(), values.end(), 0.5F);
  return values;
}

TEST(ValueHash, OfManyBytesIsThatOfAllAtOnce) {
  std::vector<float> values = large_values();
  const std::string_view text(reinterpret_cast<const char*>(values.data()),
                              values.size() * sizeof(float));
  const auto hash = [&](std::size_t count, std::uint64_t seed) {
    return hash_values(View::of(std::span(values).first(count)), seed);
  };
  constexpr std::size_t kPiece = 4 << 20;  // elements from one sign of life to the next
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kPiece,
                                  kPiece + 1, 2 * kPiece, values.size()}) {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
      EXPECT_EQ(hash(count, seed), hash_text(text.substr(0, count * sizeof(float)), seed)) << count;
    }
  }
}

// A watchdog would take the hash of gigabytes for an endless loop.
TEST(ValueHash, GivesSignsOfLife) {
  std::vector<float> values = large_values();
  const View view = View::of(std::span(values));
  std::int64_t before = signs_of_life();
  static_cast<void>(hash_values(view, 0));
  EXPECT_GE(signs_of_life() - before, 3);
  before = signs_of_life();
  static_cast<void>(hash_blocks(0, 0, view));
  EXPECT_GE(signs_of_life() - before, 3);
}

}  // namespace
}  // namespace zero
