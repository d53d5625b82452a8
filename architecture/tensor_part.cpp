// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "architecture/tensor_part.h"

#include <algorithm>

namespace zero {

std::int64_t count_of(const IndexRanges& ranges) {
  std::int64_t count = 0;
  for (const TensorSlice::Range& range : ranges) count += range.count;
  return count;
}

IndexRanges part_of(const IndexRanges& ranges, std::int64_t begin, std::int64_t count) {
  IndexRanges part;
  for (const TensorSlice::Range& range : ranges) {
    const std::int64_t from = std::max<std::int64_t>(begin, 0);
    const std::int64_t to = std::min(begin + count, range.count);
    if (from < to) part.push_back({range.begin + from, to - from, range.copy});
    begin -= range.count;
  }
  return part;
}

void TensorPart::read(const Read& read, std::int64_t first, std::span<float> values) const {
  const std::int64_t each = width();
  if (each == 0) return;
  const auto take = [&values](std::int64_t count) {
    const std::span<float> taken = values.first(static_cast<std::size_t>(count));
    values = values.subspan(taken.size());
    return taken;
  };
  const std::int64_t most = std::max<std::int64_t>(1, kPiece / all_columns);
  std::vector<float> piece;
  for (const auto& range : part_of(rows, first, std::ssize(values) / each)) {
    if (each == all_columns) {
      read(range.begin * all_columns, take(range.count * each));
      continue;
    }
    for (std::int64_t row = 0; row < range.count; row += most) {
      const std::int64_t count = std::min(most, range.count - row);
      piece.resize(static_cast<std::size_t>(count * all_columns));
      read((range.begin + row) * all_columns, piece);
      for (std::int64_t i = 0; i < count; ++i) {
        for (const TensorSlice::Range& held : columns) {
          const auto from = piece.begin() + i * all_columns + held.begin;
          std::copy(from, from + held.count, take(held.count).begin());
        }
      }
    }
  }
}

}  // namespace zero
