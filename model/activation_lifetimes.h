// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "architecture/decoder_shape.h"
#include "device/lifetime_plan.h"
#include "model/block_run.h"
#include "model/recompute.h"

namespace zero {

/// The rows whose activations a rank holds.
struct DecoderRows {
  std::int64_t all = 0;  ///< of a micro-batch
  std::int64_t own = 0;  ///< of the residual stream: all; with sequence parallelism, a share
  std::int64_t sequence = 0;
  int ranks = 1;  ///< of the tensor group
  int rank = 0;   ///< in that group
  bool sequence_parallel = false;
  int chunks = 1;                  ///< of rows, which are computed and summed in turns
  std::int64_t logits = 0;         ///< of logits, at a time
  std::int64_t logit_columns = 0;  ///< of a row of logits, with padding
};

/// An activation of no block, or one for all blocks.
enum class SharedActivation : std::uint8_t {
  normed,
  gathered_normed,
  branch,
  partial,
  normed_qkv,
  head_statistics,
  activated,
  dbranch,
  gathered_dbranch,
  last_x,
  last_statistics,
  dx,
  gathered_dx,
  partial_embedding,
  dhidden,
  dattended,
  dqkv,
  logits,
  softmax,
  losses,
  norm_gradients,
  cosines,
  sines,
  local_cosines,
  local_sines,
};
inline constexpr std::size_t kSharedActivations = 25;

/// Where a shared activation is used. Its places there are apart: one of backward may lie over
/// what forward alone needs.
enum class Within : std::uint8_t {
  forward,  ///< of blocks, recompute too; also of what is used in one place only
  head,
  mlp,        ///< the backward of a block's MLP
  attention,  ///< the backward of its attention
};
inline constexpr std::size_t kWithins = 4;

/// When each activation of a micro-batch lives, in steps: the order of Decoder's work, in which one
/// block stands for those of a run. A step is work whose operands are alive together: an
/// operation; with several chunks of rows all that chunks interleave; until compute has waited for
/// them, also what collectives read and write. A tensor that a step reads or writes lives in it.
struct ActivationLifetimes {
  using Spans = std::vector<LifeSpan>;

  std::vector<BlockRun> runs{};
  std::vector<std::array<Spans, kBlockActivations>> blocks{};  ///< of each run
  std::array<std::array<Spans, kWithins>, kSharedActivations> shared{};
  int head = 0;  ///< its step: forward ends before it, backward begins behind it
  int last = 0;  ///< the last step

  /// `plan`: of a device (RecomputePlan::on). No spans: the tensor does not exist, or nothing uses
  /// it.
  static ActivationLifetimes of(const DecoderShape& decoder, const DecoderRows& rows,
                                const RecomputePlan& plan);
};

}  // namespace zero
