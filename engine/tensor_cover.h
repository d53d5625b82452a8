// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "engine/unit.h"

namespace zero {

/// Indices along the sliced dimension of a parameter that several ranks of the tensor axis hold.
struct SharedRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::vector<int> holders;  ///< ranks of the tensor axis, two or more, ascending
};

/// What the ranks of the tensor axis hold of one parameter: ranges[r] are rank r's.
struct TensorCover {
  std::vector<std::vector<TensorSlice::Range>> ranges;

  /// Throws zero::Error unless each index of the sliced dimension of `slice` (of the parameter
  /// `name`) is the copy 0 of exactly one rank.
  void check(const std::string& name, const TensorSlice& slice) const;
  std::vector<SharedRange> shared() const;
};

/// The covers of the sliced parameters of `units` (empty for the others), in registration order.
/// Every rank has the same units, sliced or not. Collective over the tensor axis.
std::vector<TensorCover> exchange_covers(Communicator& tensor, Device& device,
                                         std::span<const Unit> units);

}  // namespace zero
