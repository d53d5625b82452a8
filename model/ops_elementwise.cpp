// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Sums, products with a number, GELU and gated units.
#include "base/half.h"
#include "model/op_call.h"

namespace zero {

void Ops::column_sums(const MatrixShape& s, View x, View sums) {
  run({"column_sums", s.dtype},
      {{"x", x, s.count(), s.dtype}, {"sums", sums, s.columns, or_fp32(sums, s.dtype)}},
      [&] { do_column_sums(s, x, sums); });
}

void Ops::add(View x, View delta, View sum) {
  run({"add", x.dtype()},
      {{"x", x, x.count(), x.dtype()},
       {"delta", delta, x.count(), x.dtype()},
       {"sum", sum, x.count(), x.dtype()}},
      [&] { do_add(x, delta, sum); });
}

void Ops::scale(View x, float factor) {
  const float rounded = x.dtype() == DType::bf16   ? to_float(to_bfloat16(factor))
                        : x.dtype() == DType::fp16 ? to_float(to_float16(factor))
                                                   : factor;
  run({"scale", x.dtype()}, {{"x", x, x.count(), x.dtype(), 2 * x.count()}},
      [&] { do_scale(x, rounded); });
}

void Ops::gelu_forward(View x, View y) {
  run({"gelu_forward", x.dtype()}, {{"x", x, x.count(), x.dtype()}, {"y", y, x.count(), x.dtype()}},
      [&] { do_gelu_forward(x, y); });
}

void Ops::gelu_backward(const MatrixShape& s, View x, View dy, View y, View dbias) {
  run({"gelu_backward", s.dtype},
      {{"x", x, s.count(), s.dtype},
       {"dy", dy, s.count(), s.dtype, 2 * s.count()},
       optional("y", y, s.count(), s.dtype),
       {"dbias", dbias, s.columns, or_fp32(dbias, s.dtype)}},
      [&] { do_gelu_backward(s, x, dy, y, dbias); });
}

void Ops::gated_forward(const MatrixShape& s, Gate gate, View x, View y) {
  run({gate == Gate::silu ? "swiglu_forward" : "geglu_forward", s.dtype},
      {{"x", x, 2 * s.count(), s.dtype}, {"y", y, s.count(), s.dtype}},
      [&] { do_gated_forward(s, gate, x, y); });
}

void Ops::gated_backward(const MatrixShape& s, Gate gate, View x, View dy) {
  run({gate == Gate::silu ? "swiglu_backward" : "geglu_backward", s.dtype},
      {{"x", x, 2 * s.count(), s.dtype, 4 * s.count()},
       {"dy", dy, s.count(), s.dtype, 2 * s.count()}},
      [&] { do_gated_backward(s, gate, x, dy); });
}

}  // namespace zero
