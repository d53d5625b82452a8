// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "base/error.h"

namespace zero {

/// ceil(a / b) for a >= 0, b > 0.
constexpr std::int64_t div_ceil(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The smallest multiple of `b` that is at least `a`; a >= 0, b > 0.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return div_ceil(a, b) * b; }

/// a / b; throws zero::Error unless b divides a.
inline std::int64_t div_exact(std::int64_t a, std::int64_t b) {
  ZERO_CHECK(b > 0 && a % b == 0, "{} is not a multiple of {}", a, b);
  return a / b;
}

/// a * b for non-negative sizes; throws zero::Error if the product does not fit 63 bits.
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  ZERO_CHECK(!__builtin_mul_overflow(a, b, &product), "size {} x {} does not fit 64 bits", a, b);
  return product;
}

/// Converts between integer types; throws zero::Error if the value changes.
template <typename To, typename From>
To narrow(From value) {
  ZERO_CHECK(std::in_range<To>(value), "value {} does not fit an integer of {} bytes", value,
             sizeof(To));
  return static_cast<To>(value);
}

}  // namespace zero
