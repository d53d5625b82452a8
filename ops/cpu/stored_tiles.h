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
// bf16_dot_product.h has it. An element's value is its level, of u4 less its zero point, times its
// scale: rounded to fp32, or to bf16 if tiles read it; pairs multiply levels and scale the sums of
// groups.

/// The scales of 32 columns, as they are stored: int8: 32 fp32; q4: for each group 32 fp16; nf4:
/// for each group 32 codes, then the ranges; u4: for each group 32 fp16, then for each group 32
/// bytes of zero points.
class ColumnScales {
 public:
  ColumnScales() = default;
  ColumnScales(const WeightShape& shape, const std::byte* data)
      : format_(shape.format),
        group_(scale_group(shape)),
        groups_(count_groups(shape, shape.in)),
        data_(data) {}

  static std::int64_t bytes(const WeightShape& shape);

  /// The group of an element at that depth; padding belongs to the last group.
  std::int64_t group_of(std::int64_t depth) const {
    return group_ == 0 ? 0 : std::min(depth / group_, groups_ - 1);
  }
  const float* of_int8() const { return reinterpret_cast<const float*>(data_); }
  /// Of q4 and u4.
  const float16* of_fp16(std::int64_t group) const {
    return reinterpret_cast<const float16*>(data_) + group * kTile;
  }
  /// The zero points of u4.
  const std::uint8_t* zeros(std::int64_t group) const {
    return reinterpret_cast<const std::uint8_t*>(of_fp16(groups_)) + group * kTile;
  }
  const std::uint8_t* of_nf4(std::int64_t group) const {
    return reinterpret_cast<const std::uint8_t*>(data_) + group * kTile;
  }
  const ScaleRange& range(std::int64_t group) const {
    return reinterpret_cast<const ScaleRange*>(data_ + groups_ * kTile)[group / kGroupsOfRange];
  }
  /// The scale of a column in a group.
  float scale(std::int64_t group, std::int64_t column) const;
  /// The zero point of a column in a group; 0 but of u4.
  float zero(std::int64_t group, std::int64_t column) const {
    return format_ == WeightFormat::u4 ? static_cast<float>(zeros(group)[column]) : 0.0F;
  }

 private:
  WeightFormat format_ = WeightFormat::plain;
  std::int64_t group_ = 0;
  std::int64_t groups_ = 0;
  const std::byte* data_ = nullptr;
};

inline std::int64_t ColumnScales::bytes(const WeightShape& shape) {
  const std::int64_t groups = count_groups(shape, shape.in);
  switch (shape.format) {
    case WeightFormat::plain:
      return 0;
    case WeightFormat::int8:
      return kTile * 4;
    case WeightFormat::q4:
      return groups * kTile * 2;
    case WeightFormat::u4:
      return groups * kTile * (2 + 1);
    case WeightFormat::nf4:
      return groups * kTile +
             div_ceil(groups, kGroupsOfRange) * static_cast<std::int64_t>(sizeof(ScaleRange));
  }
  return 0;
}

inline float ColumnScales::scale(std::int64_t group, std::int64_t column) const {
  if (format_ == WeightFormat::int8) return of_int8()[column];
  if (scale_bytes(format_) == 2) return to_float(of_fp16(group)[column]);
  return static_cast<float>(of_nf4(group)[column]) * range(group).step + range(group).least;
}

/// Where a stored weight lies.
struct StoredTiles {
  WeightShape shape;
  const std::byte* data = nullptr;
  const std::byte* scales = nullptr;

  WeightFormat format() const { return shape.format; }
  std::int64_t depth_tiles() const { return count_tiles(shape.in); }  ///< tiles of a column
  std::int64_t tile_bytes() const;
  const std::byte* column(std::int64_t column) const {
    return data + column * depth_tiles() * tile_bytes();
  }
  const std::byte* tile(std::int64_t column, std::int64_t step) const {
    return this->column(column) + step * tile_bytes();
  }
  ColumnScales scales_of(std::int64_t column) const {
    return {shape, scales + column * ColumnScales::bytes(shape)};
  }
};

inline std::int64_t StoredTiles::tile_bytes() const {
  switch (shape.format) {
    case WeightFormat::plain:
      return kTileElements * size_of(shape.dtype);
    case WeightFormat::int8:
      return kTileElements;
    default:
      return kTileElements / 2;
  }
}

}  // namespace zero::cpu
