// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partition/parameter_spec.h"

namespace zero {

/// Parameters start, and shards end, at multiples of this many elements, so that sums over aligned
/// blocks do not depend on the ends of shards.
inline constexpr std::int64_t kAlignment = 64;

/// A run of elements, of a flat layout or of a tensor.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t count = 0;

  std::int64_t end() const { return begin + count; }
  /// The intersection with `other`; if empty, positioned at the end of this range that is nearer to
  /// `other`.
  FlatRange within(const FlatRange& other) const;
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

/// The place of one parameter in the flat layout.
struct Placement {
  int index = 0;           ///< position in the list that was given
  std::int64_t begin = 0;  ///< first element in the flat layout, a multiple of kAlignment
  std::int64_t count = 0;  ///< elements that this rank of the tensor axis holds

  FlatRange range() const { return {begin, count}; }
};

/// The place of each parameter of a unit in the unit's contiguous, padded buffer of `world` equal
/// shards:
///
///     [ large parameters, in the order given | small parameters | padding ]
///     [ shard 0 | shard 1 | ... | shard world-1 ]
///
/// Small parameters (at most `small` elements each) come last, in one tail, because every rank may
/// keep a whole compute copy of the tail. Pure arithmetic: no memory, no communication.
class FlatLayout {
 public:
  /// Parameters start, and shards end, at multiples of `alignment`, itself a multiple of
  /// kAlignment. Throws zero::Error on world < 1 or sizes that overflow.
  FlatLayout(const std::vector<ParameterSpec>& parameters, int world, std::int64_t small,
             std::int64_t alignment = kAlignment);

  const std::vector<Placement>& placements() const { return placements_; }  ///< in the order given
  /// The elements of `range` that `rank` owns: those of its shard, as FlatRange::within() gives
  /// them. Over all ranks in order, the results cover `range` without a gap. Throws zero::Error on
  /// a rank outside the world or a range outside the layout.
  FlatRange owned(int rank, const FlatRange& range) const;
  int world() const { return world_; }
  std::int64_t shard() const {
    return shard_;
  }  ///< elements of each rank's shard, a multiple of kAlignment
  std::int64_t padded() const { return shard_ * world_; }  ///< elements of the flat layout
  std::int64_t logical() const { return logical_; }        ///< elements of all parameters
  std::int64_t padding() const { return padded() - logical_; }
  std::int64_t tail_begin() const {
    return tail_begin_;
  }  ///< where the small parameters start, a multiple of kAlignment
  std::int64_t tail() const {
    return tail_end_ - tail_begin_;
  }  ///< elements of the tail, inner padding included

 private:
  std::vector<Placement> placements_;
  int world_ = 1;
  std::int64_t shard_ = 0;
  std::int64_t logical_ = 0;
  std::int64_t tail_begin_ = 0;
  std::int64_t tail_end_ = 0;
};

}  // namespace zero
