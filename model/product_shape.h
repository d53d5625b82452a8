// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include "base/dtype.h"
#include "model/ops.h"

namespace zero {

/// Whether a left or right operand lies as the product reads it, or as its transpose.
enum class MatrixPlacement : std::uint8_t { plain, transposed };

/// C (m, n) = A (m, k) * B (k, n) [+ bias (n)], or C += A * B. Leading dimensions are elements
/// between rows as they lie in memory; 0: dense.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  MatrixPlacement a = MatrixPlacement::plain;
  MatrixPlacement b = MatrixPlacement::plain;
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

/// The products of a layer: y of dtype `out`, dx, and dW in the weight's layout.
ProductShape forward_product(const LinearShape& shape, DType out, ProductShape::Bias bias);
ProductShape input_product(const LinearShape& shape);
ProductShape weight_product(const LinearShape& shape, Write write);

}  // namespace zero
