// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Linear layers.
#include "base/checked_math.h"
#include "base/error.h"
#include "ops/op_call.h"

namespace zero {
namespace {

OpCall product(std::string_view name, const LinearShape& s) {
  check_stride(name, s.out, s.row_stride());
  return {.name = name, .dtype = s.dtype, .product = &s};
}

/// Elements of y or dy; `moved` leaves out the gaps between rows.
OpOperand outputs(std::string_view name, const LinearShape& s, View view, DType dtype) {
  return {name, view, s.rows * s.row_stride(), dtype, s.rows * s.out};
}

/// Biases and GELU require rows without gaps.
void check_dense(std::string_view operation, const LinearShape& s) {
  ZERO_CHECK(s.row_stride() == s.out,
             "{}: rows of {} elements begin {} apart, expected no gaps between them", operation,
             s.out, s.row_stride());
}

}  // namespace

void Ops::linear_forward(const LinearShape& s, View x, View weight, View bias, View y) {
  if (!bias.empty()) check_dense("linear_forward: bias", s);
  run(product("linear_forward", s),
      {{"x", x, s.rows * s.in, s.dtype},
       {"weight", weight, s.in * s.out, s.dtype},
       optional("bias", bias, s.out, s.dtype),
       outputs("y", s, y, or_fp32(y, s.dtype))},
      [&] { do_linear_forward(s, x, weight, bias, y); });
}

void Ops::linear_backward_input(const LinearShape& s, View dy, View weight, View dx) {
  run(product("linear_backward_input", s),
      {outputs("dy", s, dy, s.dtype),
       {"weight", weight, s.in * s.out, s.dtype},
       {"dx", dx, s.rows * s.in, s.dtype}},
      [&] { do_linear_backward_input(s, dy, weight, dx); });
}

void Ops::linear_backward_weight(const LinearShape& s, View x, View dy, View dweight, Write write) {
  const std::int64_t n = s.in * s.out;
  run(product("linear_backward_weight", s),
      {{"x", x, s.rows * s.in, s.dtype},
       outputs("dy", s, dy, s.dtype),
       {"dweight", dweight, n, s.weight_gradient, write == Write::add ? 2 * n : n}},
      [&] { do_linear_backward_weight(s, x, dy, dweight, write); });
}

void Ops::linear_gelu_forward(const LinearShape& s, const LinearGeluForward& o) {
  const OpCall call = product("linear_gelu_forward", s);
  check_dense(call.name, s);
  const std::initializer_list<OpOperand> operands{{"x", o.x, s.rows * s.in, s.dtype},
                                                  {"weight", o.weight, s.in * s.out, s.dtype},
                                                  {"bias", o.bias, s.out, s.dtype},
                                                  {"z", o.z, s.rows * s.out, s.dtype},
                                                  {"y", o.y, s.rows * s.out, s.dtype}};
  if (const Fused fused = fuse(s, o)) return run(call, operands, fused);
  check(call, operands);
  linear_forward(s, o.x, o.weight, o.bias, o.z);
  gelu_forward(o.z, o.y);
}

void Ops::linear_backward_parameters(const LinearShape& s, View x, View dy, View dweight,
                                     View dbias) {
  const OpCall call = product("linear_backward_parameters", s);
  check_dense(call.name, s);
  const std::initializer_list<OpOperand> operands{
      {"x", x, s.rows * s.in, s.dtype},
      {"dy", dy, s.rows * s.out, s.dtype},
      {"dweight", dweight, s.in * s.out, s.weight_gradient},
      {"dbias", dbias, s.out, or_fp32(dbias, s.dtype)}};
  if (const Fused fused = fuse(s, x, dy, dweight, dbias)) return run(call, operands, fused);
  check(call, operands);
  linear_backward_weight(s, x, dy, dweight, Write::overwrite);
  column_sums({s.rows, s.out, s.dtype}, dy, dbias);
}

}  // namespace zero
