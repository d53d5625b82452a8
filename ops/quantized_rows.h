// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/half.h"
#include "ops/tile.h"
#include "ops/weight_shape.h"

namespace zero {

/// nf4's scales are codes too, of 8 bits: `step` times the code plus `least`, for all scales of 32
/// columns over 8 groups.
struct ScaleRange {
  float least = 0;
  float step = 0;
};
inline constexpr std::int64_t kGroupsOfRange = 8;

/// Scales of a column.
constexpr std::int64_t count_groups(WeightFormat format, std::int64_t in) {
  return scale_group(format) == 0 ? 1 : div_ceil(in, scale_group(format));
}
constexpr std::int64_t count_groups(const WeightShape& shape, std::int64_t in) {
  return scale_group(shape) == 0 ? 1 : div_ceil(in, scale_group(shape));
}
/// Bytes of a scale: int8: fp32; q4 and u4: fp16; nf4: a code.
constexpr std::int64_t scale_bytes(WeightFormat format) {
  return format == WeightFormat::int8 ? 4 : format == WeightFormat::nf4 ? 1 : 2;
}
/// Of the element 0: of int8 codes are -127 to 127 in two's complement, of 4 bits 0 to 15. Codes of
/// u4 have zero points instead.
constexpr std::uint8_t zero_code(WeightFormat format) {
  return format == WeightFormat::nf4 ? 7 : format == WeightFormat::q4 ? 8 : 0;
}

/// The levels of 4-bit codes, which bf16 holds: those of nf4 are rounded to it, those of u4 are the
/// codes.
const std::array<bfloat16, 16>& code_levels(WeightFormat format);

/// Rows [first, first + count) of a tensor of files, as what they hold of its weight: inputs
/// (depths) and outputs (columns).
struct WeightRows {
  WeightShape shape;
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool by_depth() const { return shape.layout == WeightLayout::in_out; }
  std::int64_t depth_begin() const { return by_depth() ? first : 0; }
  std::int64_t depth_end() const { return by_depth() ? first + count : shape.in; }
  std::int64_t column_begin() const { return by_depth() ? 0 : first; }
  std::int64_t column_end() const { return by_depth() ? shape.out : first + count; }
  std::int64_t columns() const { return column_end() - column_begin(); }
  /// Where an element, or its code, lies among those of the rows.
  std::size_t element_at(std::int64_t depth, std::int64_t column) const {
    return at(depth - depth_begin(), depth_end() - depth_begin(), column - column_begin(),
              columns());
  }

 protected:
  std::size_t at(std::int64_t i, std::int64_t of_i, std::int64_t j, std::int64_t of_j) const {
    return static_cast<std::size_t>(by_depth() ? i * of_j + j : j * of_i + i);
  }
};

/// Rows in a format of codes, the same on every device. Scales and ranges have the tensor's order
/// of dimensions.
struct QuantizedRows : WeightRows {
  /// Allocates. Rows [begin, begin + rows) are whole groups (pack_rows).
  QuantizedRows(const WeightShape& of, std::int64_t begin, std::int64_t rows);

  std::vector<std::uint8_t> codes{};  ///< (rows, columns of the tensor)
  std::vector<std::byte> scales{};    ///< with groups where the tensor has inputs
  std::vector<ScaleRange> ranges{};   ///< nf4: one for 8 groups x 32 outputs
  std::vector<std::uint8_t> zeros{};  ///< u4: a zero point of 0 to 15 beside each scale

  // The groups and ranges that lie in the rows.
  std::int64_t group_begin() const { return group_of(depth_begin()); }
  std::int64_t group_end() const {
    return group_begin() + count_groups(shape, depth_end() - depth_begin());
  }
  std::int64_t scale_block_begin() const { return group_begin() / kGroupsOfRange; }
  std::int64_t scale_block_end() const { return div_ceil(group_end(), kGroupsOfRange); }
  std::int64_t group_of(std::int64_t depth) const {
    return scale_group(shape) == 0 ? 0 : depth / scale_group(shape);
  }

  // Places of what belongs to a group or scale block (8 groups) and a column.
  std::size_t zero_at(std::int64_t group, std::int64_t column) const {
    return at(group - group_begin(), group_end() - group_begin(), column - column_begin(),
              columns());
  }
  /// In bytes.
  std::size_t scale_at(std::int64_t group, std::int64_t column) const {
    return zero_at(group, column) * static_cast<std::size_t>(scale_bytes(shape.format));
  }
  std::size_t range_at(std::int64_t scale_block, std::int64_t column) const {
    return at(scale_block - scale_block_begin(), scale_block_end() - scale_block_begin(),
              (column - column_begin()) / kTile, div_ceil(columns(), kTile));
  }
  /// The scale of a column in a group.
  float scale(std::int64_t group, std::int64_t column) const;
  /// The zero point of a column in a group; 0 but of u4.
  std::uint8_t zero(std::int64_t group, std::int64_t column) const {
    return zeros.empty() ? std::uint8_t{0} : zeros[zero_at(group, column)];
  }
};

/// Codes and scales of rows of a tensor, fp32, on `threads` threads. Throws zero::Error, naming the
/// element, if one is infinite or NaN, or has no scale that the format holds; or if the format is
/// u4.
QuantizedRows quantize(const WeightShape& shape, std::int64_t first, std::span<const float> rows,
                       int threads);

}  // namespace zero
