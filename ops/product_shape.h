// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include "base/dtype.h"
#include "ops/op_shapes.h"

namespace zero {

/// Whether an operand is stored as the product reads it, or transposed.
enum class MatrixPlacement : std::uint8_t { plain, transposed };

/// C (m, n) = A (m, k) * B (k, n), or C += A * B, with an epilogue. Leading dimensions are elements
/// between rows in memory; 0: dense.
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  MatrixPlacement a = MatrixPlacement::plain;
  MatrixPlacement b = MatrixPlacement::plain;
  DType in = DType::fp32;   ///< of A, B and bias
  DType out = DType::fp32;  ///< of C and the epilogue's other operands
  Write write = Write::overwrite;
  /// Work fused with a product; for some shapes a library may lack those after `bias`.
  enum class Epilogue : std::uint8_t {
    none,
    bias,         ///< C += bias (n)
    gelu,         ///< aux (m, n) = A * B + bias (n), C = gelu(aux)
    row_sums,     ///< bias (m) = the sums of A's rows
    column_sums,  ///< bias (n) = the sums of B's columns
  };
  Epilogue epilogue = Epilogue::none;
  /// The only triangle of C that is needed, or the only nonzero triangle of A. Lower: row i has the
  /// columns up to i (up to i + columns - m if there are more columns than rows); upper: from i on.
  /// The rest of C is then undefined; the rest of A must be zero.
  enum class Triangle : std::uint8_t { none, c_lower, c_upper, a_lower, a_upper };
  Triangle triangle = Triangle::none;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;

  friend auto operator<=>(const ProductShape&, const ProductShape&) = default;
};

/// The products of a linear layer: y of dtype `out`, dx, and dW in the weight's layout.
ProductShape forward_product(const LinearShape& shape, DType out, ProductShape::Epilogue epilogue);
ProductShape input_product(const LinearShape& shape);
ProductShape weight_product(const LinearShape& shape, Write write);
/// The same, fused: with gelu(y), with the bias's gradient.
ProductShape gelu_product(const LinearShape& shape);
ProductShape parameters_product(const LinearShape& shape);

}  // namespace zero
