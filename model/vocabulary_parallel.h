// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/lease.h"
#include "model/layers.h"
#include "model/tensor_parallel.h"
#include "ops/ops.h"
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

/// The head's product and the cross-entropy, with the vocabulary cut over a tensor group. A rank
/// computes the logits of its tokens, for some rows at a time; ranks exchange three figures per row
/// (softmax_part) in one small all-gather, which replaces two all-reduces, of a maximum and a sum.
/// A value type.
class VocabularyParallelHead {
 public:
  VocabularyParallelHead() = default;
  /// `whole`: rows of the micro-batch, in: the width, out: the vocabulary; the weight is (out, in).
  /// `tensor` must outlive the layer. Throws zero::Error if there are fewer tokens than ranks.
  VocabularyParallelHead(TensorParallel& tensor, const LinearShape& whole);

  /// This rank's part of the weight.
  ParameterSpec weight(std::string name, Init init) const;
  void prepare(Ops& ops) const;
  /// Bytes that this rank sends for a forward and a backward.
  TrafficCounter traffic() const;

  /// Rows of logits in memory at a time, of `rows` of so many columns with padding: enough to keep
  /// a device with such pieces busy. A function of sizes alone, because gradients' last bits depend
  /// on it.
  static std::int64_t piece_rows(const PieceSizes& pieces, std::int64_t rows, std::int64_t columns,
                                 DType dtype);
  /// The same for the rows of `tensor` and a vocabulary that its ranks share; equal on all of them.
  static std::int64_t rows_at_a_time(TensorParallel& tensor, std::int64_t vocabulary, DType dtype);
  /// The row stride of logits in elements: `columns`, padded for the device's products.
  static std::int64_t padded_columns(const Device& device, std::int64_t columns);
  /// Elements of Buffers::parts for `rows` rows at a time.
  static std::int64_t parts_count(std::int64_t rows, int ranks);
  struct Buffers {
    View x, gathered;  ///< this rank's own rows, and all rows: gathered with sequence
                       ///< parallelism, otherwise x itself
    View logits;       ///< rows_at_a_time() x padded_columns() of the dtype; overwritten
    View parts;        ///< fp32; empty for one rank; overwritten
    View losses;       ///< fp64, one per row: overwritten; the same on all ranks
  };
  /// The destinations of the gradients. The weight's is fp32.
  struct Gradient {
    View weight, gradient;
    Write write = Write::overwrite;
    float scale = 1;   ///< multiplies d(loss)/d(logits)
    View partial, dx;  ///< this rank's part of all rows, and its own rows of the
                       ///< sum; the same view without sequence parallelism
  };
  /// Loss and gradients. targets: i32, of the whole vocabulary, all rows.
  void train(Ops& ops, const Buffers& buffers, const Gradient& gradient, View targets) const;
  /// The loss only, as in train().
  void evaluate(Ops& ops, const Buffers& buffers, View weight, View targets) const;

 private:
  LinearShape linear(std::int64_t count) const;
  LogitsShape of_logits(std::int64_t count) const {
    return {count, mine_.count, shape_.dtype, mine_.begin, shape_.out_stride};
  }
  /// Calls body(rows) for every rows_at_a_time() rows. The weight's gradient is a sum over them, so
  /// its last bits depend on that number.
  template <typename Body>
  void for_rows(const Body& body) const;
  std::vector<Event> gather(const Buffers& b) const;
  /// Compute waits until the chunks of `rows` are gathered.
  void wait_for(const std::vector<Event>& gathered, const Slices::Range& rows) const;
  void forward_rows(Ops& ops, const Buffers& b, View weight, const Slices::Range& rows) const;
  /// The first `rows` rows of logits.
  View logits_of(const Buffers& b, std::int64_t rows) const {
    return b.logits.slice(0, rows * shape_.row_stride());
  }
  /// Exchanges the figures of `rows`; writes those of the whole vocabulary, and the losses.
  void fold(Ops& ops, const Buffers& b, View targets, const Slices::Range& rows) const;
  void gradient_of_logits(Ops& ops, const Buffers& b, View targets, const Slices::Range& rows,
                          float scale) const;

  TensorParallel* tensor_ = nullptr;
  LinearShape shape_;            // of this rank
  std::int64_t vocabulary_ = 0;  // of all ranks
  TensorSlice::Range mine_;      // tokens
};

}  // namespace zero
