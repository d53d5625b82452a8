// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "ops/cpu/packed_product.h"
#include "ops/product_shape.h"

namespace zero::cpu {

/// Memory for a packed right operand of `shape`.
std::int64_t packed_right_bytes(const ProductShape& shape);
/// Packs the right operand `b` of `shape` into `to`, aligned to 64 bytes.
PackedRight pack_right(const ProductShape& shape, const void* b, void* to);

/// Runs `turns` rounds of the processor's instructions for products of `dtype` on operands in
/// registers, on this thread, and returns their FLOP: an upper bound for the rate of products.
/// Returns 0, and runs nothing, if products use ordinary vector arithmetic.
double flop_in_registers(DType dtype, std::int64_t turns);

/// Prepares products for a fixed number of threads, each shape once, with the kernels that
/// product_choice.h has for their dtype. Callers provide each product's scratch. The same shape
/// gives the same bits on any rank, with any number of threads and any partition of rows.
class Products {
 public:
  explicit Products(int threads) : threads_(threads) {}

  /// The product of `shape`, prepared on first use. Valid as long as this object.
  const Product& get(const ProductShape& shape, Right right = Right::in_memory);
  /// The largest scratch of the products prepared so far.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  int threads_;
  std::map<std::pair<ProductShape, Right>, Product> made_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace zero::cpu
