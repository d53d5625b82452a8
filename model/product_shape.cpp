// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/product_shape.h"

namespace zero {

ProductShape forward_product(const LinearShape& s, DType out, ProductShape::Bias bias) {
  return {
      .m = s.rows,
      .n = s.out,
      .k = s.in,
      .b = s.layout == WeightLayout::in_out ? MatrixPlacement::plain : MatrixPlacement::transposed,
      .in = s.dtype,
      .out = out,
      .bias = bias};
}

ProductShape input_product(const LinearShape& s) {
  return {
      .m = s.rows,
      .n = s.in,
      .k = s.out,
      .b = s.layout == WeightLayout::in_out ? MatrixPlacement::transposed : MatrixPlacement::plain,
      .in = s.dtype,
      .out = s.dtype};
}

// dW (in, out) = x^T dy; dW (out, in) = dy^T x.
ProductShape weight_product(const LinearShape& s, Write write) {
  const bool in_first = s.layout == WeightLayout::in_out;
  return {.m = in_first ? s.in : s.out,
          .n = in_first ? s.out : s.in,
          .k = s.rows,
          .a = MatrixPlacement::transposed,
          .in = s.dtype,
          .out = s.weight_gradient,
          .write = write};
}

}  // namespace zero
