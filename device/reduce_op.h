// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zero {

/// The elementwise operation of a reduction.
enum class ReduceOp : std::uint8_t { sum, max, min };

inline std::string_view name_of(ReduceOp op) {
  constexpr std::array<std::string_view, 3> kNames{"sum", "max", "min"};
  return kNames.at(static_cast<std::size_t>(op));
}

}  // namespace zero
