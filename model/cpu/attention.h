// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/view.h"
#include "model/cpu/products.h"
#include "model/ops.h"

namespace zero::cpu {

/// Causal attention on the CPU. The heads of a sequence that share keys and values (a head alone
/// where none do) are one piece of work, done whole by one thread with products of one thread, so
/// the bits do not depend on how many there are. Forward goes over
/// blocks of query rows against the keys up to them; backward over blocks of key rows against the
/// queries from them on, in transposed form (keys x queries), where every product but the one for q
/// is complete in one call. Scratch per thread is linear in the sequence.
class Attention {
 public:
  explicit Attention(int threads);

  /// Makes the products of `shape`.
  void prepare(const AttentionShape& shape);
  /// Scratch of all threads for what was prepared.
  std::int64_t scratch_bytes() const;

  struct Operands {
    View qkv, out, log_sums;
    View dout, dqkv;  ///< backward
    void* scratch = nullptr;
  };
  void forward(const AttentionShape& shape, const Operands& operands);
  void backward(const AttentionShape& shape, const Operands& operands);

 private:
  /// Calls body(head, products, scratch) for every head of every sequence, spread over the threads.
  template <typename Body>
  void for_heads(const AttentionShape& shape, void* scratch, const Body& body);

  std::vector<std::unique_ptr<Products>> products_;  // one a thread
  std::int64_t block_bytes_ = 0;                     // scratch of one thread, without the products'
};

}  // namespace zero::cpu
