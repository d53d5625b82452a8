// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace zero {

/// The part of a logical tensor that one rank of the tensor axis holds: ranges of indices along one
/// dimension, every other dimension whole. The local tensor concatenates the ranges, row major: a
/// matrix of q, k and v side by side is three ranges of columns, or of rows. Pure arithmetic.
struct TensorSlice {
  struct Range {
    std::int64_t begin = 0;  ///< index in the logical tensor
    std::int64_t count = 0;
    /// If several ranks hold the same range (a key/value head): the number of this one among them.
    /// Copy 0 counts in the gradient norm, in hashes and in files.
    int copy = 0;
    int holders = 1;  ///< ranks that hold it; known before they meet, so that a plan can check it
  };
  std::vector<std::int64_t> shape;  ///< of the logical tensor
  int dimension = 0;
  std::vector<Range> ranges;

  /// Throws zero::Error naming `parameter` if dimension or ranges lie outside `shape`, or ranges
  /// overlap.
  void check(std::string_view parameter) const;
  std::vector<std::int64_t> local_shape() const;
  /// Whether the indices [begin, end), if a range has them, begin at a multiple of `block` local
  /// elements, and end at one or with the local tensor.
  bool in_blocks(std::int64_t begin, std::int64_t end, std::int64_t block) const;
  /// The same of all ranges that several ranks hold.
  bool copies_in_blocks(std::int64_t block) const;

  /// Elements that are contiguous in both tensors.
  struct Run {
    std::int64_t local = 0;
    std::int64_t logical = 0;
    std::int64_t count = 0;
    int copy = 0;
  };
  using Visit = std::function<void(const Run&)>;
  /// Calls visit for the runs that make up the local elements [begin, begin + count), in order.
  void for_each_run(std::int64_t begin, std::int64_t count, const Visit& visit) const;
  /// Calls visit for the runs that this slice has of the logical elements [begin, begin + count),
  /// in their order in the logical tensor. The time grows with `count`, not with the tensor.
  void for_each_run_of_logical(std::int64_t begin, std::int64_t count, const Visit& visit) const;
};

/// Rank `rank`'s share of [0, total), split over `ranks` ranks as evenly as possible, longer shares
/// first.
TensorSlice::Range even_range(std::int64_t total, int rank, int ranks);

}  // namespace zero
