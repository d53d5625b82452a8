// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "architecture/decoder_shape.h"
#include "base/dtype.h"
#include "model/decoder_memory.h"
#include "model/recompute.h"

namespace zero {

/// Bytes of what a block of one rank keeps from forward to backward, by the tensor that a
/// RecomputePlan may have computed again instead; DecoderMemory::take_layer() allocates them.
/// Offsets' rounding to 64 bytes is left out.
struct BlockBytes {
  std::int64_t input = 0;     ///< x and the first norm's figures
  std::int64_t qkv = 0;       ///< with the first norm's output, if outputs are kept
  std::int64_t attended = 0;  ///< with logsumexp
  std::int64_t middle = 0;    ///< with the second norm's figures, and those of a branch's norm
  std::int64_t hidden = 0;    ///< with GELU's and the second norm's outputs, if they are kept

  /// `decoder`: the part that the rank holds. `outputs`: of a device (RecomputePlan::on).
  BlockBytes(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
             BlockOutputs outputs);
  /// Of all tensors.
  std::int64_t total() const { return input + qkv + attended + middle + hidden; }
};

/// All of a rank's activations but the scratch of operations: what blocks keep, one place for each
/// tensor and each place of a block group that backward computes again, the operands that blocks
/// share, and the larger of logits and (places + the MLP's wide operands).
std::int64_t closed_activations(const DecoderShape& decoder, const DecoderRows& rows, DType dtype,
                                const RecomputePlan& plan);

}  // namespace zero
