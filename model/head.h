// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/decoder_memory.h"
#include "model/ops.h"

namespace zero {

/// The product that gives logits, fused with the loss: chunk by chunk of rows, so that no more than
/// DecoderMemory::kChunkRows rows of logits exist. A value type.
struct LossHead {
  std::int64_t rows = 0;  ///< of the micro-batch
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;
  DType dtype = DType::fp32;

  void prepare(Ops& ops) const;
  /// Where the weight's gradient goes, fp32, and whether it is added there.
  struct Gradient {
    View weight, gradient;
    Write write = Write::overwrite;
    float scale = 1;  ///< of d(loss)/d(logits)
  };
  /// Loss and gradients of memory.normed(): the input's is left in memory.branch().
  void train(Ops& ops, const DecoderMemory& memory, const Gradient& gradient, View targets) const;
  /// The loss alone: into memory.losses(), as train() has it.
  void evaluate(Ops& ops, const DecoderMemory& memory, View weight, View targets) const;
  /// fp32 logits of one row.
  void logits(Ops& ops, View row, View weight, View out) const;

 private:
  LinearShape linear(std::int64_t count) const;
};

}  // namespace zero
