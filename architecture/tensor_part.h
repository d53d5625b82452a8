// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "partition/tensor_slice.h"

namespace zero {

/// Indices along one dimension, in order.
using IndexRanges = std::vector<TensorSlice::Range>;
std::int64_t count_of(const IndexRanges& ranges);
/// The indices [begin, begin + count) of those that `ranges` list.
IndexRanges part_of(const IndexRanges& ranges, std::int64_t begin, std::int64_t count);

/// The elements of a tensor (rows, columns) of files that a rank holds: those of some rows and some
/// columns, row major.
struct TensorPart {
  IndexRanges rows;
  IndexRanges columns;
  std::int64_t all_columns = 0;  ///< of the tensor

  std::int64_t width() const { return count_of(columns); }
  /// Fills `values`, fp32, with elements of the tensor from `begin` on.
  using Read = std::function<void(std::int64_t begin, std::span<float> values)>;
  /// Fills `values`, whole rows of the part, from its row `first` on. Where the part has some of
  /// the columns, reads all of them, about kPiece elements at a time.
  void read(const Read& read, std::int64_t first, std::span<float> values) const;
  static constexpr std::int64_t kPiece = std::int64_t{1} << 20;
};

}  // namespace zero
