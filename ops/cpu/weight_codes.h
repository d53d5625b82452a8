// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "ops/quantized_rows.h"

namespace zero::cpu {

// The codes of stored weights and their scales, for 32 columns at a time.

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

}  // namespace zero::cpu
