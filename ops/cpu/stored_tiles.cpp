// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/stored_tiles.h"

#include <algorithm>

namespace zero::cpu {

std::int64_t ColumnScales::bytes(const WeightShape& shape) {
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

float ColumnScales::scale(std::int64_t group, std::int64_t column) const {
  if (format_ == WeightFormat::int8) return of_int8()[column];
  if (scale_bytes(format_) == 2) return to_float(of_fp16(group)[column]);
  return static_cast<float>(of_nf4(group)[column]) * range(group).step + range(group).least;
}

void store_scales(const QuantizedRows& rows, std::int64_t column, std::byte* to) {
  const WeightFormat format = rows.shape.format;
  const std::int64_t bytes = scale_bytes(format);
  const std::int64_t count = std::min(kTile, rows.column_end() - column);
  for (std::int64_t group = rows.group_begin(); group < rows.group_end(); ++group) {
    std::byte* const scales = to + group * kTile * bytes;
    std::fill_n(scales, kTile * bytes, std::byte{0});
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(rows.scales.data() + rows.scale_at(group, column + i), bytes, scales + i * bytes);
    }
  }
  if (format == WeightFormat::u4) {
    std::byte* const zeros = to + count_groups(rows.shape, rows.shape.in) * kTile * bytes;
    for (std::int64_t group = rows.group_begin(); group < rows.group_end(); ++group) {
      std::fill_n(zeros + group * kTile, kTile, std::byte{0});
      for (std::int64_t i = 0; i < count; ++i) {
        zeros[group * kTile + i] = static_cast<std::byte>(rows.zero(group, column + i));
      }
    }
  }
  if (format != WeightFormat::nf4) return;
  auto* const ranges =
      reinterpret_cast<ScaleRange*>(to + count_groups(format, rows.shape.in) * kTile);
  for (std::int64_t scale_block = rows.scale_block_begin(); scale_block < rows.scale_block_end();
       ++scale_block) {
    ranges[scale_block] = rows.ranges[rows.range_at(scale_block, column)];
  }
}

std::int64_t StoredTiles::tile_bytes() const {
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
