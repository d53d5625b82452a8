// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cpu/products.h"
#include "ops/inference_ops.h"

namespace zero::cpu {

/// Rows that products compute at a time.
inline constexpr std::int64_t kRowsAtATime = 8;
constexpr std::int64_t padded_rows(std::int64_t rows) { return round_up(rows, kRowsAtATime); }

/// Products of packed weights (packed_weight.h). Weights that are stored in another form than
/// kernels read are widened in registers for a few rows, for more in the cache, some columns at a
/// time. The order of an element's sums, and so its bits, do not depend on the number of rows.
class WeightProducts {
 public:
  explicit WeightProducts(int threads);

  /// Notes the scratch of multiply() of this shape with up to `rows` rows.
  void prepare(const WeightShape& shape, std::int64_t rows);
  /// Of one product, all threads together.
  std::int64_t scratch_bytes() const;

  struct Operands {
    View x;                        ///< (padded_rows(rows), in), in the shape's dtype
    View weight;                   ///< as pack_weight() stores it
    View bias;                     ///< (out), in the shape's dtype, or empty
    View y;                        ///< (padded_rows(rows), out), in the shape's dtype or fp32
    std::byte* scratch = nullptr;  ///< scratch_bytes(), aligned to 64 bytes
  };
  /// y = x W + bias on this and other threads; returns when y is written. One call at a time.
  void multiply(const WeightShape& shape, std::int64_t rows, const Operands& operands);

 private:
  std::int64_t gemv_bytes(const WeightShape& shape, std::int64_t rows) const;
  void multiply_gemv(const WeightShape& shape, std::int64_t rows, const Operands& operands) const;
  std::int64_t bf16_dot_bytes(const WeightShape& shape, std::int64_t rows) const;
  void multiply_bf16_dot(const WeightShape& shape, std::int64_t rows,
                         const Operands& operands) const;
  void multiply_gemm(const WeightShape& shape, std::int64_t rows, const Operands& operands);
  const Product& block_product(const WeightShape& shape, std::int64_t rows, std::int64_t columns,
                               const Operands& operands, std::int64_t thread);

  int threads_;
  std::vector<std::unique_ptr<Products>> products_;  // one per thread
  std::int64_t column_bytes_ = 0;                    // of products by columns of tiles
  std::int64_t widened_bytes_ = 0;                   // of one thread
  std::int64_t block_bytes_ = 0;                     // of one thread's products
};

}  // namespace zero::cpu
