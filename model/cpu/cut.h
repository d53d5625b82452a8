// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/checked_math.h"
#include "model/cpu/packed_kernels.h"

namespace zero::cpu::packed {

/// Squares that cover `count` rows, columns or steps of depth.
inline std::int64_t blocks(std::int64_t count) { return div_ceil(count, kBlock); }

/// Rows, columns or depth, of an operand or of what one square or several of it hold.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  Range block(std::int64_t i) const { return blocks(i, 1); }
  Range blocks(std::int64_t i, std::int64_t number) const {
    return {begin + i * kBlock, std::min(number * kBlock, count - i * kBlock)};
  }
};

/// Neighbouring squares, counted from where a piece begins.
struct Squares {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// [0, count) in even parts of whole blocks.
struct Cut {
  std::int64_t count = 0;
  std::int64_t part = 0;

  static Cut even(std::int64_t count, std::int64_t most) {
    const std::int64_t parts = div_ceil(count, most);
    return {count, round_up(div_ceil(count, parts), kBlock)};
  }
  std::int64_t parts() const { return div_ceil(count, part); }
  Range at(std::int64_t i) const { return {i * part, std::min(part, count - i * part)}; }
};

}  // namespace zero::cpu::packed
