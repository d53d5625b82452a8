// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "partition/tensor_slice.h"

namespace zero {

/// The heads of attention that one rank of a tensor group computes. Where there are enough heads of
/// keys and values they are dealt out, each with all the query heads that read it. Where there are
/// fewer than ranks, the ranks are dealt out: each holds one such head, a copy of it as others do,
/// and a share of its query heads. Shares may be uneven; the longer ones come first.
struct HeadSplit {
  TensorSlice::Range queries;  ///< heads
  TensorSlice::Range keys;     ///< heads of keys and of values
  int holders = 1;             ///< ranks that hold these very keys; keys.copy numbers them

  /// Throws zero::Error where a rank would have no head of queries.
  static HeadSplit of(std::int64_t heads, std::int64_t kv_heads, int rank, int ranks);

  /// The elements of a row of q, k and v side by side that are this rank's.
  std::vector<TensorSlice::Range> qkv(std::int64_t heads, std::int64_t kv_heads,
                                      std::int64_t head_width) const;
  /// Of a row of what attention gives.
  TensorSlice::Range attended(std::int64_t head_width) const;
};

}  // namespace zero
