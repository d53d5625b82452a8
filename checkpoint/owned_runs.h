// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "partition/flat_layout.h"
#include "partition/logical_tensor.h"

namespace zero {

/// `repeats` runs of `count` elements whose begins are `stride` apart: a rank's columns of a matrix
/// are a run in each row. Runs do not overlap.
struct StridedRun {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  std::int64_t stride = 0;  ///< at least `count`
  std::int64_t repeats = 1;

  std::int64_t end() const { return begin + (repeats - 1) * stride + count; }
  /// The elements that are before `element`.
  std::int64_t count_before(std::int64_t element) const;
  friend bool operator==(const StridedRun&, const StridedRun&) = default;
};

/// The runs of `runs` (ascending, disjoint) of which this rank is the first holder.
std::vector<StridedRun> strided_runs(std::span<const StateRun> runs);

/// Which rank of a replica owns which elements of a list of tensors: its first runs
/// (StateRun::first). Every rank of the replica makes the same object from the texts of all.
class OwnedRuns {
 public:
  /// The text of one rank: its runs of each tensor, in the order of the list.
  static std::string encode(std::span<const std::vector<StridedRun>> tensors);
  /// From the texts of all ranks, in rank order, for `tensors` tensors. Throws zero::Error naming
  /// the rank if a text is no list of runs of as many tensors.
  OwnedRuns(std::span<const std::string> texts, std::size_t tensors);

  int ranks() const { return ranks_; }

  /// Elements [begin, begin + count) of a tensor, in one run of a rank.
  using Visit = std::function<void(int rank, std::int64_t begin, std::int64_t count)>;
  /// Calls `visit` for the owned elements in `wanted`, each rank's in ascending order.
  void for_each_in(std::size_t tensor, const FlatRange& wanted, const Visit& visit) const;
  using Count = std::function<void(int rank, std::int64_t count)>;
  /// Calls `visit` for numbers of elements in `wanted` that a rank owns, several for a rank with
  /// several strided runs there. Does not walk their repeats.
  void count_in(std::size_t tensor, const FlatRange& wanted, const Count& visit) const;

 private:
  struct Owned {
    StridedRun run;
    int rank = 0;
    std::int64_t reach = 0;  // the largest end of this and all earlier ones of the tensor
  };
  /// Those of a tensor that may have elements in `wanted`.
  std::span<const Owned> overlapping(std::size_t tensor, const FlatRange& wanted) const;

  int ranks_ = 0;
  std::vector<std::vector<Owned>> tensors_;  // each ascending by the begin of the runs
};

}  // namespace zero
