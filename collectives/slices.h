// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "device/view.h"

namespace zero {

/// One slice of a buffer per rank: slice r is rank r's share. Slices do not overlap; they may be
/// empty, uneven, and need not be adjacent (a bucket takes the same range out of every shard).
struct Slices {
  struct Range {
    std::int64_t begin = 0;  ///< elements from the start of `buffer`
    std::int64_t count = 0;
  };
  View buffer;
  std::vector<Range> ranges;  ///< one per rank

  int world() const { return static_cast<int>(ranges.size()); }
  View of(int rank) const {
    const Range& range = ranges.at(static_cast<std::size_t>(rank));
    return buffer.slice(range.begin, range.count);
  }
  /// Elements of all slices together.
  std::int64_t total() const;
  /// Elements of the largest slice.
  std::int64_t largest() const;
  /// Elements [begin, begin + count) of each slice, cut at its end.
  Slices part(std::int64_t begin, std::int64_t count) const;
  /// `world` equal adjacent slices; throws zero::Error when world does not divide buffer.count().
  static Slices even(View buffer, int world);
  /// Elements [begin, begin + count) out of each of `world` equal adjacent shards of `buffer`.
  static Slices strided(View buffer, int world, std::int64_t begin, std::int64_t count);
};

/// Part `rank` of `values` cut into `world` nearly equal adjacent parts.
View share(View values, int rank, int world);

}  // namespace zero
