// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014):
// hashes of 64 bits, and random numbers that are a function of a key and a counter.

/// 2^64 over the golden ratio.
inline constexpr std::uint64_t kGoldenGamma = 0x9e3779b97f4a7c15ULL;

/// The finalizer: a bijection that spreads every bit of `x` over all 64. mixed_bits(0) is 0.
constexpr std::uint64_t mixed_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Number `counter` of the generator that starts at `state`.
constexpr std::uint64_t split_mix(std::uint64_t state, std::uint64_t counter = 0) {
  return mixed_bits(state + kGoldenGamma * (counter + 1));
}

}  // namespace zero
