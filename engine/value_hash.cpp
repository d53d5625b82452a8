// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/value_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "partition/flat_layout.h"

namespace zero {
namespace {

constexpr std::uint64_t kPlace = 0x9e3779b97f4a7c15ULL;  // 2^64 over the golden ratio

/// The finalizer of SplitMix64 (Steele, Lea & Flood, 2014): every bit of the input moves every bit
/// of the result.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

template <typename Bits>
std::uint64_t sum_of_elements(std::int64_t begin, const View& values) {
  const auto* const bytes = static_cast<const std::byte*>(values.data());
  auto place = static_cast<std::uint64_t>(begin) * kPlace;
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < values.count(); ++i, place += kPlace) {
    Bits bits = 0;
    std::memcpy(&bits, bytes + static_cast<std::size_t>(i) * sizeof(Bits), sizeof(Bits));
    sum += mixed(place + bits);
  }
  return sum;
}

}  // namespace

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::uint64_t hash_values(HostPieces& pieces, const View& values) {
  std::uint64_t hash = 0;
  pieces.read(values, [&](std::int64_t /*begin*/, const View& piece) {
    hash = XXH3_64bits_withSeed(piece.data(), static_cast<std::size_t>(piece.bytes()), hash);
  });
  return hash;
}

std::uint64_t hash_blocks(std::uint64_t seed, std::int64_t begin, const View& values) {
  std::uint64_t sum = 0;
  for (std::int64_t at = 0; at < values.count(); at += kAlignment) {
    const View block = values.slice(at, std::min(kAlignment, values.count() - at));
    const auto place = static_cast<std::uint64_t>(begin + at);
    sum += XXH3_64bits_withSeed(block.data(), static_cast<std::size_t>(block.bytes()),
                                seed + place * kPlace);
  }
  return sum;
}

std::uint64_t hash_elements(std::int64_t begin, const View& values) {
  return values.dtype() == DType::fp32 ? sum_of_elements<std::uint32_t>(begin, values)
                                       : sum_of_elements<std::uint16_t>(begin, values);
}

}  // namespace zero
