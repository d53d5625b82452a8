// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "partition/flat_layout.h"

namespace zero {

/// A run of one parameter's elements inside one rank's shard.
struct Piece {
  int parameter = 0;               ///< index in the FlatLayout's list
  int rank = 0;                    ///< owner
  std::int64_t logical_begin = 0;  ///< first element within the parameter
  std::int64_t shard_begin = 0;    ///< first element within the owner's shard
  std::int64_t count = 0;

  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Who owns which elements of a flat layout.
class ShardMap {
 public:
  explicit ShardMap(const FlatLayout& layout);

  /// Pieces owned by `rank`, in flat order; padding belongs to no piece.
  std::vector<Piece> pieces_of_rank(int rank) const;
  /// Pieces of one parameter over all ranks, in logical order.
  std::vector<Piece> pieces_of_parameter(int parameter) const;
  /// The part of [begin, begin + count) of the flat layout that `rank` owns, as elements from the
  /// start of its shard; count 0 where it owns none.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };
  Range owned(int rank, std::int64_t begin, std::int64_t count) const;

 private:
  FlatLayout layout_;
};

/// Elements to copy from a shard of an old layout to a shard of a new one.
struct Transfer {
  int parameter = 0;
  int from_rank = 0;
  int to_rank = 0;
  std::int64_t from_begin = 0;  ///< in the old owner's shard
  std::int64_t to_begin = 0;    ///< in the new owner's shard
  std::int64_t count = 0;

  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// What `to_rank` of the new layout reads from the shards of the old one: every owned logical
/// element exactly once. Both layouts hold the same parameters in the same order (throws
/// zero::Error otherwise); worlds and thresholds may differ.
std::vector<Transfer> reshard(const FlatLayout& from, const FlatLayout& to, int to_rank);

}  // namespace zero
