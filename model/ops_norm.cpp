// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Layer norms and RMS norms.
#include "base/error.h"
#include "model/op_call.h"

namespace zero {
namespace {

/// Elements of delta and sum, which a call gives both or neither.
template <typename Forward>
std::int64_t added(const MatrixShape& s, const Forward& o) {
  return o.delta.empty() && o.sum.empty() ? 0 : s.count();
}

template <typename Forward>
void check_apply(std::string_view operation, const Forward& o) {
  ZERO_CHECK(o.delta.empty() && o.sum.empty(),
             "{}: takes no delta; give what forward left in sum as x", operation);
}

}  // namespace

void Ops::layer_norm_forward(const MatrixShape& s, const LayerNormForward& o) {
  run({"layer_norm_forward", s.dtype},
      {{"x", o.x, s.count(), s.dtype},
       {"delta", o.delta, added(s, o), s.dtype},
       {"sum", o.sum, added(s, o), s.dtype},
       {"gamma", o.gamma, s.columns, s.dtype},
       {"beta", o.beta, s.columns, s.dtype},
       {"y", o.y, s.count(), s.dtype},
       {"statistics", o.statistics, 2 * s.rows, DType::fp32}},
      [&] { do_layer_norm_forward(s, o); });
}

void Ops::layer_norm_apply(const MatrixShape& s, const LayerNormForward& o) {
  check_apply("layer_norm_apply", o);
  run({"layer_norm_apply", s.dtype},
      {{"x", o.x, s.count(), s.dtype},
       {"gamma", o.gamma, s.columns, s.dtype},
       {"beta", o.beta, s.columns, s.dtype},
       {"y", o.y, s.count(), s.dtype},
       {"statistics", o.statistics, 2 * s.rows, DType::fp32}},
      [&] { do_layer_norm_apply(s, o); });
}

void Ops::layer_norm_backward(const MatrixShape& s, const LayerNormBackward& o) {
  const DType gradient = or_fp32(o.dgamma, s.dtype);
  run({"layer_norm_backward", s.dtype},
      {{"x", o.x, s.count(), s.dtype},
       {"statistics", o.statistics, 2 * s.rows, DType::fp32},
       {"gamma", o.gamma, s.columns, s.dtype},
       {"dy", o.dy, s.count(), s.dtype},
       {"dx", o.dx, s.count(), s.dtype, 2 * s.count()},
       {"dgamma", o.dgamma, s.columns, gradient},
       {"dbeta", o.dbeta, s.columns, gradient}},
      [&] { do_layer_norm_backward(s, o); });
}

void Ops::rms_norm_forward(const MatrixShape& s, const RmsNormForward& o) {
  run({"rms_norm_forward", s.dtype},
      {{"x", o.x, s.count(), s.dtype},
       {"delta", o.delta, added(s, o), s.dtype},
       {"sum", o.sum, added(s, o), s.dtype},
       {"weight", o.weight, s.columns, s.dtype},
       {"y", o.y, s.count(), s.dtype},
       {"statistics", o.statistics, s.rows, DType::fp32}},
      [&] { do_rms_norm_forward(s, o); });
}

void Ops::rms_norm_apply(const MatrixShape& s, const RmsNormForward& o) {
  check_apply("rms_norm_apply", o);
  run({"rms_norm_apply", s.dtype},
      {{"x", o.x, s.count(), s.dtype},
       {"weight", o.weight, s.columns, s.dtype},
       {"y", o.y, s.count(), s.dtype},
       {"statistics", o.statistics, s.rows, DType::fp32}},
      [&] { do_rms_norm_apply(s, o); });
}

void Ops::rms_norm_backward(const MatrixShape& s, const RmsNormBackward& o) {
  run({"rms_norm_backward", s.dtype},
      {{"x", o.x, s.count(), s.dtype},
       {"statistics", o.statistics, s.rows, DType::fp32},
       {"weight", o.weight, s.columns, s.dtype},
       {"dy", o.dy, s.count(), s.dtype},
       {"dx", o.dx, s.count(), s.dtype, 2 * s.count()},
       {"dweight", o.dweight, s.columns, or_fp32(o.dweight, s.dtype)}},
      [&] { do_rms_norm_backward(s, o); });
}

}  // namespace zero
