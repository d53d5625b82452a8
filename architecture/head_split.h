// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "partition/tensor_slice.h"

namespace zero {

/// The attention heads that one rank of a tensor group computes. With at least as many key/value
/// heads as ranks, each rank gets a share of them, with all query heads that read them. With fewer,
/// ranks share: each holds a copy of one key/value head and a share of its query heads. Shares may
/// be uneven; the longer ones come first.
struct HeadSplit {
  TensorSlice::Range queries;  ///< heads
  TensorSlice::Range keys;     ///< heads of keys and of values
  int holders = 1;             ///< ranks that hold the same keys; keys.copy numbers them

  /// Throws zero::Error if a rank would have no query head.
  static HeadSplit of(std::int64_t heads, std::int64_t kv_heads, int rank, int ranks);

  /// This rank's elements of a row of q, k and v side by side.
  std::vector<TensorSlice::Range> qkv(std::int64_t heads, std::int64_t kv_heads,
                                      std::int64_t head_width) const;
  /// This rank's elements of a row of attention's output.
  TensorSlice::Range attended(std::int64_t head_width) const;
};

/// Throws zero::Error if one of `ranks` ranks would have no share of the `total` items named
/// `what`.
void check_share(std::string_view what, std::int64_t total, int ranks);

}  // namespace zero
