// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/ops.h"
#include "model/tensor_parallel.h"
#include "partition/parameter_spec.h"

namespace zero {

/// The product that gives logits, fused with the cross-entropy, the vocabulary cut over a tensor
/// group: a rank has the logits of its tokens, for some rows at a time, and ranks exchange
/// three figures a row (softmax_part) once: one small all-gather where a maximum and a sum would be
/// two all-reduces. A value type.
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

  /// Rows of logits that exist at a time: as many as the device is best kept busy with.
  static std::int64_t rows_at_a_time(TensorParallel& tensor);
  /// Elements from one row of logits to the next: `columns`, padded as the device's products want.
  static std::int64_t padded_columns(const Device& device, std::int64_t columns);
  /// Elements of Buffers::parts for `rows` rows at a time.
  static std::int64_t parts_count(std::int64_t rows, int ranks);
  struct Buffers {
    View x, gathered;  ///< this rank's own rows, and all of them: gathered under sequence
                       ///< parallelism, else x itself
    View logits;       ///< rows_at_a_time() x padded_columns() of the dtype; content is lost
    View parts;        ///< fp32; empty for one rank; content is lost
    View losses;       ///< fp64, one a row: overwritten; the same on all ranks
  };
  /// Where the gradients go. The weight's is fp32.
  struct Gradient {
    View weight, gradient;
    Write write = Write::overwrite;
    float scale = 1;   ///< of d(loss)/d(logits)
    View partial, dx;  ///< all rows, of which this rank computes a part, and its own rows of the
                       ///< sum; the same view without sequence parallelism
  };
  /// Loss and gradients. targets: i32, of the whole vocabulary, all rows.
  void train(Ops& ops, const Buffers& buffers, const Gradient& gradient, View targets) const;
  /// The loss alone, as train() has it.
  void evaluate(Ops& ops, const Buffers& buffers, View weight, View targets) const;
  /// fp32 logits of one row, of the whole vocabulary, on every rank.
  void logits(Ops& ops, View row, View weight, View out) const;

 private:
  LinearShape linear(std::int64_t count) const;
  LinearShape one_row() const;  // without padding
  LogitsShape of_logits(std::int64_t count) const {
    return {count, mine_.count, shape_.dtype, mine_.begin, shape_.out_stride};
  }
  /// Calls body(rows) for every rows_at_a_time() rows. On a CPU no bit of the weight's gradient
  /// depends on how many those are.
  template <typename Body>
  void for_rows(const Body& body) const;
  std::vector<Event> gather(const Buffers& b) const;
  /// Compute goes on once the chunks of `rows` have come.
  void wait_for(const std::vector<Event>& gathered, const Slices::Range& rows) const;
  void forward_rows(Ops& ops, const Buffers& b, View weight, const Slices::Range& rows) const;
  /// The first `rows` rows of logits.
  View logits_of(const Buffers& b, std::int64_t rows) const {
    return b.logits.slice(0, rows * shape_.row_stride());
  }
  /// Exchanges the figures of `rows`; leaves those of the whole vocabulary, and the losses.
  void fold(Ops& ops, const Buffers& b, View targets, const Slices::Range& rows) const;
  void gradient_of_logits(Ops& ops, const Buffers& b, View targets, const Slices::Range& rows,
                          float scale) const;

  TensorParallel* tensor_ = nullptr;
  LinearShape shape_;            // of this rank
  std::int64_t vocabulary_ = 0;  // of all ranks
  TensorSlice::Range mine_;      // tokens
};

}  // namespace zero
