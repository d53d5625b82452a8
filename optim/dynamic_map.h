// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero {

/// The values of dynamic quantization (Dettmers, Lewis, Shleifer and Zettlemoyer, "8-bit Optimizers
/// via Block-wise Quantization", 2022) for magnitudes of 0 to 1: ranges up to 1, each with twice as
/// many values as the one below. Unlike the paper's, a range covers four octaves instead of a
/// decade, and each of its octaves has as many values as the others, evenly spaced. So value n is
/// found without a table, from the bits of t = n + 1 as an fp32:
///
///     g(t) = the fp32 whose bits are 4 times t's, so scaled that g(2^kBits) is 1
///     value n = g(n + 1) - g(1), rounded to fp32
///
/// Four times the bits: t's exponent counts ranges, the first two bits of its fraction an octave
/// of the range, the others are the value's fraction. 0 and 1 are values: the largest element of a
/// block is exact, and decoded values encode to the same codes and scale again. `kBits` is 7 for
/// values with a sign (n of 0 to 127, down to 2^-24), 8 without (0 to 255, down to 2^-28).
template <int kBits>
struct DynamicMap {
  static constexpr float kFirst =
      1.0F / static_cast<float>(std::uint64_t{1} << (4 * kBits));  ///< g(1)
  static constexpr float kLowest = 15 * kFirst;                    ///< value 1
  // Modulo 2^32: bits(g(t)) = 4 * bits(t) + kToValue, bits(t) = bits(g(t)) / 4 + kToNumber.
  static constexpr std::uint32_t kToValue = std::uint32_t{131 - 4 * kBits} << 23;
  static constexpr std::uint32_t kToNumber = std::uint32_t{381 + 4 * kBits} << 21;
};

/// A block whose largest magnitude is below this is stored as zeros: products with the smallest
/// value would leave the normal numbers.
inline constexpr float kSmallestScale = 0x1p-96F;

}  // namespace zero
