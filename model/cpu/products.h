// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>

#include "base/dtype.h"
#include "model/ops.h"

namespace zero::cpu {

/// Whether a left or right operand lies as the product reads it, or as its transpose.
enum class Placement : std::uint8_t { plain, transposed };

/// C (m, n) = A (m, k) * B (k, n) [+ bias (n)], or C += A * B. Leading dimensions are elements
/// between rows as they lie in memory; 0: dense.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Placement a = Placement::plain;
  Placement b = Placement::plain;
  DType in = DType::fp32;   ///< of A, B and bias
  DType out = DType::fp32;  ///< of C
  Write write = Write::overwrite;
  enum class Bias : std::uint8_t { none, row } bias = Bias::none;
  /// What need not be computed. Row i wants of C, or has in A what is not zero, only the columns up
  /// to i (up to i + columns - m where there are more of them than rows): lower; from i on: upper.
  /// The rest of C is then undefined; of A it must be zero.
  enum class Triangle : std::uint8_t { none, c_lower, c_upper, a_lower, a_upper };
  Triangle triangle = Triangle::none;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};

/// One product of one shape, made ready. Not for two threads at once.
class Product {
 public:
  struct Operands {
    const void* a = nullptr;
    const void* b = nullptr;
    const void* bias = nullptr;
    void* c = nullptr;
    void* scratch = nullptr;
  };
  virtual ~Product() = default;
  virtual void run(const Operands& operands) = 0;
  virtual std::int64_t scratch_bytes() const = 0;
};

/// Makes products for a fixed number of threads, each shape once, by the kernels that the processor
/// has for their dtype (see packed_kernels.h). The scratch of each product is the caller's. Same
/// shape, same bits on any rank, with any number of threads and however rows are cut.
class Products {
 public:
  explicit Products(int threads) : threads_(threads) {}

  /// The product of `shape`, made now if it is new. Valid as long as this.
  Product& get(const ProductShape& shape);
  /// The largest scratch of the products made so far.
  std::int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  int threads_;
  std::map<ProductShape, std::unique_ptr<Product>> made_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace zero::cpu
