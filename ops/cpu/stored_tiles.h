// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "ops/cpu/weight_codes.h"

namespace zero::cpu {

// A weight as tiles of 32 x 32 elements (ops/cpu/packed_kernels.h), one column of tiles after
// another, then the scales (weight_codes.h). Plain elements and 8-bit codes lie where the kernels
// of the compute dtype keep them in a tile of their own; 4-bit codes by rows of depth, column i
// in the low half of byte i, column 16 + i in its high half; codes for bf16 instructions as
// bf16_dot_product.h has it. An element's value is its level times its scale: rounded to fp32, or
// to bf16 if tiles read it; pairs multiply levels and scale the sums of groups.

/// Where a stored weight lies.
struct StoredTiles {
  const std::byte* data = nullptr;
  WeightFormat format = WeightFormat::plain;
  DType dtype = DType::fp32;  ///< of plain elements
  std::int64_t in = 0;

  std::int64_t depth_tiles() const { return count_tiles(in); }  ///< tiles of a column
  std::int64_t tile_bytes() const;
  const std::byte* column(std::int64_t column) const {
    return data + column * depth_tiles() * tile_bytes();
  }
  const std::byte* tile(std::int64_t column, std::int64_t step) const {
    return this->column(column) + step * tile_bytes();
  }
  const std::byte* scales = nullptr;
  ColumnScales scales_of(std::int64_t column) const {
    return {format, in, scales + column * ColumnScales::bytes(format, in)};
  }
};

}  // namespace zero::cpu
