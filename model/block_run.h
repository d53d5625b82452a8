// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/recompute.h"

namespace zero {

/// An activation that each block has.
enum class BlockActivation : std::uint8_t {
  x,
  x_share,
  statistics,
  normed,
  qkv,
  logsumexp,
  attended,
  projected,
  projected_statistics,
  middle,
  middle_statistics,
  middle_normed,
  hidden,
  activated,
  output,
  output_statistics,
};
inline constexpr std::size_t kBlockActivations = 16;

/// Consecutive blocks whose activations live alike.
struct BlockRun {
  std::int64_t first = 0;
  std::int64_t count = 1;
  BlockRecompute again{};
  bool grouped = false;      ///< in a block group of several
  bool partitioned = false;  ///< a rank keeps its share of their inputs

  /// Whether backward has the tensor computed again.
  bool computes_again(BlockActivation tensor) const;
  /// Whether one place serves all blocks: a tensor that lives in one block's passes at a time.
  bool shares(BlockActivation tensor) const { return !grouped && computes_again(tensor); }
};
/// The runs of `layers` blocks, in order. Block 0, which adds no branch, and the last block of a
/// run, at which most is alive, are runs of their own. `partitions`: ranks keep their shares of
/// inputs that are kept alone.
std::vector<BlockRun> block_runs(std::int64_t layers, const RecomputePlan& plan, bool partitions);

}  // namespace zero
