// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Layer norms and RMS norms.
#include "base/error.h"
#include "model/op_call.h"

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

}  // namespace zero
