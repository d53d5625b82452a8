// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "inference/inference_ops.h"

namespace zero::cpu {

/// Rows [first, first + count()) of a tensor of files, as inputs (depths) and outputs (columns) of
/// its weight.
struct FileRows {
  const WeightShape& shape;
  std::span<const float> values;
  std::int64_t first;

  std::int64_t count() const {
    return static_cast<std::int64_t>(values.size()) / shape.file_columns();
  }
  bool by_depth() const { return shape.layout == WeightLayout::in_out; }
  std::int64_t depth_begin() const { return by_depth() ? first : 0; }
  std::int64_t depth_end() const { return by_depth() ? first + count() : shape.in; }
  std::int64_t column_begin() const { return by_depth() ? 0 : first; }
  std::int64_t column_end() const { return by_depth() ? shape.out : first + count(); }
  float at(std::int64_t depth, std::int64_t column) const {
    const std::int64_t place =
        by_depth() ? (depth - first) * shape.out + column : (column - first) * shape.in + depth;
    return values[static_cast<std::size_t>(place)];
  }
};

}  // namespace zero::cpu
