// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/value_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "base/sign_of_life.h"

namespace zero {
namespace {

constexpr std::uint64_t kPlace = 0x9e3779b97f4a7c15ULL;  // 2^64 over the golden ratio

}  // namespace

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::uint64_t hash_values(const View& values, std::uint64_t seed) {
  constexpr std::size_t kBetweenSigns = std::size_t{16} << 20;  // bytes: some milliseconds
  give_sign_of_life();
  const auto* at = static_cast<const std::byte*>(values.data());
  auto left = static_cast<std::size_t>(values.bytes());
  if (left <= kBetweenSigns) return XXH3_64bits_withSeed(at, left, seed);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset_withSeed(state.get(), seed);
  while (left > 0) {
    const std::size_t part = std::min(left, kBetweenSigns);
    XXH3_64bits_update(state.get(), at, part);
    give_sign_of_life();
    at += part;
    left -= part;
  }
  return XXH3_64bits_digest(state.get());
}

std::uint64_t hash_blocks(std::uint64_t seed, std::int64_t begin, const View& values,
                          std::int64_t block) {
  const auto* const bytes = static_cast<const std::byte*>(values.data());
  const std::int64_t size = size_of(values.dtype());
  std::uint64_t sum = 0;
  constexpr std::int64_t kBetweenSigns = 1 << 22;  // elements: some milliseconds
  for (std::int64_t at = 0; at < values.count(); at += block) {
    if (at % kBetweenSigns == 0) give_sign_of_life();
    const auto length = static_cast<std::size_t>(std::min(block, values.count() - at) * size);
    sum += XXH3_64bits_withSeed(bytes + at * size, length,
                                seed + static_cast<std::uint64_t>(begin + at) * kPlace);
  }
  return sum;
}

}  // namespace zero
