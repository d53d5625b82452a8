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
inline ProductShape forward_product(const LinearShape& s, DType out,
                                    ProductShape::Epilogue epilogue) {
  return {
      .m = s.rows,
      .n = s.out,
      .k = s.in,
      .b = s.layout == WeightLayout::in_out ? MatrixPlacement::plain : MatrixPlacement::transposed,
      .in = s.dtype,
      .out = out,
      .epilogue = epilogue,
      .ldc = s.out_stride};
}

inline ProductShape input_product(const LinearShape& s) {
  return {
      .m = s.rows,
      .n = s.in,
      .k = s.out,
      .b = s.layout == WeightLayout::in_out ? MatrixPlacement::transposed : MatrixPlacement::plain,
      .in = s.dtype,
      .out = s.dtype,
      .lda = s.out_stride};
}

// dW (in, out) = x^T dy; dW (out, in) = dy^T x.
inline ProductShape weight_product(const LinearShape& s, Write write) {
  const bool in_first = s.layout == WeightLayout::in_out;
  return {.m = in_first ? s.in : s.out,
          .n = in_first ? s.out : s.in,
          .k = s.rows,
          .a = MatrixPlacement::transposed,
          .in = s.dtype,
          .out = s.weight_gradient,
          .write = write,
          .lda = in_first ? 0 : s.out_stride,
          .ldb = in_first ? s.out_stride : 0};
}

/// The same, fused: with gelu(y), with the bias's gradient.
inline ProductShape gelu_product(const LinearShape& s) {
  return forward_product(s, s.dtype, ProductShape::Epilogue::gelu);
}

inline ProductShape parameters_product(const LinearShape& s) {
  ProductShape product = weight_product(s, Write::overwrite);
  product.epilogue = s.layout == WeightLayout::in_out ? ProductShape::Epilogue::column_sums
                                                      : ProductShape::Epilogue::row_sums;
  return product;
}

}  // namespace zero
