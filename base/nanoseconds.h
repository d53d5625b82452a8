// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace zero {

constexpr double to_seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e9;
}

constexpr std::int64_t to_nanoseconds(double seconds) {
  return static_cast<std::int64_t>(seconds * 1e9);
}

/// The time of day: nanoseconds since 1970.
inline std::int64_t time_of_day() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace zero
