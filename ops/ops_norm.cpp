// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Layer norms and RMS norms, of rows and of the heads in rows of q, k and v.
#include "base/error.h"
#include "ops/op_call.h"

namespace zero {
namespace {

OpCall call_of(NormKind kind, std::string_view layer, std::string_view rms, DType dtype) {
  return {kind == NormKind::layer ? layer : rms, dtype};
}

/// Elements of delta and sum: a call has both or neither.
std::int64_t added(const MatrixShape& s, const NormForward& o) {
  return o.delta.empty() && o.sum.empty() ? 0 : s.count();
}

OpOperand statistics(const MatrixShape& s, NormKind kind, View view) {
  return {"statistics", view, kind == NormKind::layer ? 2 * s.rows : s.rows, DType::fp32};
}

}  // namespace

void Ops::norm_forward(const MatrixShape& s, const NormForward& o) {
  run(call_of(o.kind(), "layer_norm_forward", "rms_norm_forward", s.dtype),
      {{"x", o.x, s.count(), s.dtype},
       {"delta", o.delta, added(s, o), s.dtype},
       {"sum", o.sum, added(s, o), s.dtype},
       {"weight", o.weight, s.columns, s.dtype},
       optional("bias", o.bias, s.columns, s.dtype),
       {"y", o.y, s.count(), s.dtype},
       statistics(s, o.kind(), o.statistics)},
      [&] { do_norm_forward(s, o); });
}

void Ops::norm_apply(const MatrixShape& s, const NormForward& o) {
  const OpCall call = call_of(o.kind(), "layer_norm_apply", "rms_norm_apply", s.dtype);
  ZERO_CHECK(o.delta.empty() && o.sum.empty(),
             "{}: takes no delta; give what forward left in sum as x", call.name);
  run(call,
      {{"x", o.x, s.count(), s.dtype},
       {"weight", o.weight, s.columns, s.dtype},
       optional("bias", o.bias, s.columns, s.dtype),
       {"y", o.y, s.count(), s.dtype},
       statistics(s, o.kind(), o.statistics)},
      [&] { do_norm_apply(s, o); });
}

void Ops::norm_backward(const MatrixShape& s, const NormBackward& o) {
  const DType gradient = or_fp32(o.dweight, s.dtype);
  run(call_of(o.kind(), "layer_norm_backward", "rms_norm_backward", s.dtype),
      {{"x", o.x, s.count(), s.dtype},
       statistics(s, o.kind(), o.statistics),
       {"weight", o.weight, s.columns, s.dtype},
       {"dy", o.dy, s.count(), s.dtype},
       {"dx", o.dx, s.count(), s.dtype, 2 * s.count()},
       {"dweight", o.dweight, s.columns, gradient},
       optional("dbias", o.dbias, s.columns, gradient)},
      [&] { do_norm_backward(s, o); });
}

void Ops::head_norm_forward(const HeadNormShape& s, const HeadNormForward& o) {
  // In place the values are not touched.
  const bool in_place = o.y.data() == o.x.data();
  const std::int64_t moved = in_place ? s.rows * s.normed_heads() * s.head_width : s.count();
  run({"head_norm_forward", s.dtype},
      {{"x", o.x, s.count(), s.dtype, moved},
       {"query_weight", o.query_weight, s.head_width, s.dtype},
       {"key_weight", o.key_weight, s.head_width, s.dtype},
       {"y", o.y, s.count(), s.dtype, moved},
       optional("statistics", o.statistics, s.rows * s.normed_heads(), DType::fp32)},
      [&] { do_head_norm_forward(s, o); });
}

void Ops::head_norm_backward(const HeadNormShape& s, const HeadNormBackward& o) {
  const DType gradient = or_fp32(o.dquery, s.dtype);
  const std::int64_t normed = s.rows * s.normed_heads() * s.head_width;
  run({"head_norm_backward", s.dtype},
      {{"x", o.x, s.count(), s.dtype, normed},
       {"statistics", o.statistics, s.rows * s.normed_heads(), DType::fp32},
       {"query_weight", o.query_weight, s.head_width, s.dtype},
       {"key_weight", o.key_weight, s.head_width, s.dtype},
       {"dy", o.dy, s.count(), s.dtype, 2 * normed},
       {"dquery", o.dquery, s.head_width, gradient},
       {"dkey", o.dkey, s.head_width, gradient}},
      [&] { do_head_norm_backward(s, o); });
}

}  // namespace zero
