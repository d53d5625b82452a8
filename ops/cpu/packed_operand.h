// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/checked_math.h"
#include "ops/cpu/packed_kernels.h"
#include "ops/product_shape.h"

namespace zero::cpu::packed {

/// Rows, columns or depth of an operand, or of one or more of its tiles.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  Range tile(std::int64_t i) const { return tiles(i, 1); }
  Range tiles(std::int64_t i, std::int64_t number) const {
    return {begin + i * kTile, std::min(number * kTile, count - i * kTile)};
  }
};

/// Neighbouring tiles, counted from the start of a piece.
struct Tiles {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Cuts [0, count) into even parts of whole blocks.
struct Cut {
  std::int64_t count = 0;
  std::int64_t part = 0;

  static Cut even(std::int64_t count, std::int64_t most) {
    const std::int64_t parts = div_ceil(count, most);
    return {count, round_up(div_ceil(count, parts), kTile)};
  }
  std::int64_t parts() const { return div_ceil(count, part); }
  Range at(std::int64_t i) const { return {i * part, std::min(part, count - i * part)}; }
};

/// An operand in memory. Its lanes are rows of the result for the left operand, columns for the
/// right.
struct Source {
  enum class Along : std::uint8_t { depth, lanes } along;  ///< the contiguous dimension
  Form form;
  DType dtype;
  std::int64_t stride;  ///< elements between rows of memory
};

Source left_source(const ProductShape& shape);
Source right_source(const ProductShape& shape);

/// Packs lanes x depth of the operand `data` to `to`: tiles by lane, then by depth.
void fill(const Kernels& kernels, const Source& source, const void* data, Range lanes, Range depth,
          std::byte* to);

}  // namespace zero::cpu::packed
