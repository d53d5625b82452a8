// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/lease.h"
#include "model/layers.h"
#include "model/tensor_parallel.h"
#include "partition/parameter_spec.h"

namespace zero {

/// x = embedding of tokens + embedding of positions, if there are any. The table of tokens is cut
/// by rows over a tensor group: a rank embeds the tokens it holds and writes zeros for all others,
/// so that the sum over ranks is bit for bit the embedding. Every rank holds the whole table of
/// positions; the first adds them. A value type over leases.
class VocabularyParallelEmbedding {
 public:
  /// Positions of the parameters in their unit; kAbsent: no positions.
  struct Slots {
    int tokens = 0;
    int positions = kAbsent;
  };

  VocabularyParallelEmbedding() = default;
  /// `whole` is the embedding over all ranks; `tensor` must outlive the layer. Throws zero::Error
  /// if there are fewer tokens than ranks.
  VocabularyParallelEmbedding(TensorParallel& tensor, const EmbeddingShape& whole,
                              const Slots& slots);

  /// This rank's part of the table of tokens.
  ParameterSpec tokens(std::string name, Init init) const;
  /// `first` and `vocabulary` are this rank's.
  const EmbeddingShape& shape() const { return shape_; }

  void prepare(Ops& ops) const {
    ops.prepare(shape_);
    tensor_->prepare(shape_.width, shape_.dtype);
  }
  /// Bytes that this rank sends for a forward and a backward.
  TrafficCounter traffic() const;

  /// tokens: i32, of the whole vocabulary. x has this rank's own rows, `partial` all rows; they may
  /// be the same view without sequence parallelism.
  struct Forward {
    View tokens;
    View partial, x;
  };
  void forward(Ops& ops, const ParameterLease& unit, const Forward& operands) const;

  /// dx has this rank's own rows; with sequence parallelism `gathered` receives all rows, otherwise
  /// `gathered` is dx itself.
  struct Backward {
    View tokens;
    View dx, gathered;
  };
  /// Adds to the gradients of both tables, fp32. The gradient of positions has the same bits on all
  /// ranks.
  void backward(Ops& ops, const GradientLease& unit, const Backward& operands) const;

 private:
  TensorParallel* tensor_ = nullptr;
  EmbeddingShape shape_;
  std::int64_t vocabulary_ = 0;  // of all ranks
  Slots at_;
};

}  // namespace zero
