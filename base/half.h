// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace zero {

/// A bfloat16 value: the upper half of an fp32. Storage only; arithmetic is done in fp32.
struct bfloat16 {
  std::uint16_t bits = 0;
  friend bool operator==(bfloat16, bfloat16) = default;
};

/// An IEEE 754 binary16 value. Storage only.
struct float16 {
  std::uint16_t bits = 0;
  friend bool operator==(float16, float16) = default;
};

inline float to_float(bfloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN, overflow becomes infinity.
inline bfloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

float to_float(float16 value);
/// Rounds to nearest, ties to even; a NaN stays a (quiet) NaN, overflow becomes infinity.
float16 to_float16(float value);

inline float to_float(float value) { return value; }

}  // namespace zero
