// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/view.h"
#include "ops/cpu/products.h"
#include "ops/ops.h"

namespace zero::cpu {

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
