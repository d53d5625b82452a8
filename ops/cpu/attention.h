// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "device/view.h"
#include "ops/cpu/products.h"
#include "ops/ops.h"

namespace zero::cpu {

/// Scores of query rows [first, first + rows) against keys [0, keys), in fp32. Query i attends to
/// keys i - window < j <= i. Positions are counted from the block's first key.
struct SoftmaxBlock {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t keys = 0;
  std::int64_t window = 0;
  std::int64_t stride = 0;  ///< elements between rows, of scores and of probabilities
  float scale = 1;          ///< multiplies the scores
  const float* scores = nullptr;
  /// exp(score - row's largest), 0 if masked: unnormalised; may be `scores` in fp32
  void* probabilities = nullptr;
  DType dtype = DType::fp32;      ///< of probabilities
  float* logsumexp = nullptr;     ///< per row: log of the sum of exp(scale * score)
  float* inverse_sums = nullptr;  ///< per row: 1 / sum of probabilities
};
void softmax_block(const SoftmaxBlock& block);

/// Scores, transposed: keys [first, first + rows) against queries [first, first + queries), which
/// attend as above.
struct GradientBlock {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int64_t queries = 0;
  std::int64_t window = 0;
  std::int64_t stride = 0;  ///< elements between rows, of all four
  float scale = 1;
  const float* scores = nullptr;
  const float* dprobabilities = nullptr;
  const float* log2_sums = nullptr;  ///< per query of the sequence: logsumexp over log(2)
  const float* deltas = nullptr;     ///< per query: dout . out
  void* probabilities = nullptr;     ///< may be `scores` in fp32
  void* dscores = nullptr;           ///< may be `dprobabilities` in fp32
  DType dtype = DType::fp32;
};
void gradient_block(const GradientBlock& block);

/// Rows of `columns` elements, `stride` elements apart.
struct RowBlock {
  void* data = nullptr;
  std::int64_t stride = 0;
  DType dtype = DType::fp32;
};
/// to = round(from * factor[row]); from: fp32, dense. A null factor is 1.
void store_rows(const float* from, std::int64_t rows, std::int64_t columns, const float* factors,
                const RowBlock& to);
/// dots[row] = a[row] . b[row]
void row_dots(const RowBlock& a, const RowBlock& b, std::int64_t rows, std::int64_t columns,
              float* dots);

/// Causal attention on the CPU. All heads of a sequence that share keys and values (one head if
/// none do) are one piece of work for one thread, with single-threaded products, so that the bits
/// do not depend on the number of threads. Forward multiplies blocks of query rows by the keys up
/// to them; backward multiplies blocks of key rows by the queries from them on, in transposed form
/// (keys x queries), so that every product except the one for q is complete in one call. Scratch
/// per thread is linear in the sequence.
class Attention {
 public:
  explicit Attention(int threads);

  /// Prepares the products of `shape`.
  void prepare(const AttentionShape& shape);
  /// Bytes of scratch of all threads for the prepared shapes.
  std::int64_t scratch_bytes() const;

  struct Operands {
    View qkv, out, logsumexp;
    View dout, dqkv;  ///< backward
    void* scratch = nullptr;
  };
  void forward(const AttentionShape& shape, const Operands& operands);
  void backward(const AttentionShape& shape, const Operands& operands);

 private:
  /// Calls body(head, products, scratch) for every head of every sequence, spread over the threads.
  template <typename Body>
  void for_heads(const AttentionShape& shape, void* scratch, const Body& body);

  std::vector<std::unique_ptr<Products>> products_;  // one per thread
  std::int64_t block_bytes_ = 0;                     // scratch of one thread, except for products
};

}  // namespace zero::cpu
