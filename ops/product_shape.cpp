// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/product_shape.h"

namespace zero {

ProductShape forward_product(const LinearShape& s, DType out, ProductShape::Epilogue epilogue) {
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

ProductShape input_product(const LinearShape& s) {
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
ProductShape weight_product(const LinearShape& s, Write write) {
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

ProductShape gelu_product(const LinearShape& s) {
  return forward_product(s, s.dtype, ProductShape::Epilogue::gelu);
}

ProductShape parameters_product(const LinearShape& s) {
  ProductShape product = weight_product(s, Write::overwrite);
  product.epilogue = s.layout == WeightLayout::in_out ? ProductShape::Epilogue::column_sums
                                                      : ProductShape::Epilogue::row_sums;
  return product;
}

}  // namespace zero
