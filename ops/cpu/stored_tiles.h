// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/half.h"
#include "ops/quantized_rows.h"

namespace zero::cpu {

// A stored weight: tiles of 32 x 32 elements (packed_kernels.h), one column of tiles after
// another, then the scales (ColumnScales). Plain elements and 8-bit codes lie where the kernels
// of the compute dtype keep them in a tile of their own; 4-bit codes by rows of depth, column i
// in the low half of byte i, column 16 + i in its high half; codes for bf16 instructions as
// bf16_dot_product.h has it. An element's value is its level times its scale: rounded to fp32, or
// to bf16 if tiles read it; pairs multiply levels and scale the sums of groups.

/// The scales of 32 columns, as they are stored: int8: 32 fp32; q4: for each group 32 fp16; nf4:
/// for each group 32 codes, then the ranges.
class ColumnScales {
 public:
  ColumnScales() = default;
  ColumnScales(WeightFormat format, std::int64_t in, const std::byte* data)
      : format_(format), groups_(count_groups(format, in)), data_(data) {}

  static std::int64_t bytes(WeightFormat format, std::int64_t in);

  /// The group of an element at that depth; padding belongs to the last group.
  std::int64_t group_of(std::int64_t depth) const {
    return scale_group(format_) == 0 ? 0 : std::min(depth / scale_group(format_), groups_ - 1);
  }
  const float* of_int8() const { return reinterpret_cast<const float*>(data_); }
  const float16* of_q4(std::int64_t group) const {
    return reinterpret_cast<const float16*>(data_) + group * kTile;
  }
  const std::uint8_t* of_nf4(std::int64_t group) const {
    return reinterpret_cast<const std::uint8_t*>(data_) + group * kTile;
  }
  const ScaleRange& range(std::int64_t group) const {
    return reinterpret_cast<const ScaleRange*>(data_ + groups_ * kTile)[group / kGroupsOfRange];
  }
  /// The scale of a column in a group.
  float scale(std::int64_t group, std::int64_t column) const;

 private:
  WeightFormat format_ = WeightFormat::plain;
  std::int64_t groups_ = 0;
  const std::byte* data_ = nullptr;
};

/// Stores the scales of 32 columns from `column` on; 0 behind the last.
void store_scales(const QuantizedRows& rows, std::int64_t column, std::byte* to);

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
