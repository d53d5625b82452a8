// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace zero {

void NormLayer::forward(Ops& ops, const ParameterLease& unit, const Operands& o) const {
  normalise(ops, {unit.at(weight), bias == kAbsent ? View() : unit.at(bias)}, o);
}

void NormLayer::forward(Ops& ops, const GradientLease& unit, const Operands& o) const {
  normalise(ops, {unit.parameter(weight), bias == kAbsent ? View() : unit.parameter(bias)}, o);
}

NormLayer::Operands NormLayer::of_rows(const Operands& o, const Slices::Range& rows) const {
  const auto part = [&](View view, std::int64_t width) {
    return view.empty() ? view : view.slice(rows.begin * width, rows.count * width);
  };
  return {.x = part(o.x, shape.columns),
          .delta = part(o.delta, shape.columns),
          .sum = part(o.sum, shape.columns),
          .y = part(o.y, shape.columns),
          .statistics = part(o.statistics, statistics())};
}

void NormLayer::normalise(Ops& ops, const Weights& w, const Operands& o) const {
  if (bias == kAbsent) {
    ops.rms_norm_forward(shape, {.x = o.x,
                                 .delta = o.delta,
                                 .sum = o.sum,
                                 .weight = w.weight,
                                 .y = o.y,
                                 .statistics = o.statistics,
                                 .epsilon = epsilon});
    return;
  }
  ops.layer_norm_forward(shape, {.x = o.x,
                                 .delta = o.delta,
                                 .sum = o.sum,
                                 .gamma = w.weight,
                                 .beta = w.bias,
                                 .y = o.y,
                                 .statistics = o.statistics});
}

void NormLayer::apply(Ops& ops, const GradientLease& unit, const Operands& o) const {
  if (bias == kAbsent) {
    ops.rms_norm_apply(shape, {.x = o.x,
                               .weight = unit.parameter(weight),
                               .y = o.y,
                               .statistics = o.statistics,
                               .epsilon = epsilon});
    return;
  }
  ops.layer_norm_apply(shape, {.x = o.x,
                               .gamma = unit.parameter(weight),
                               .beta = unit.parameter(bias),
                               .y = o.y,
                               .statistics = o.statistics});
}

void NormLayer::backward(Ops& ops, const GradientLease& unit, const Gradient& o) const {
  const View dweight = o.dweight.empty() ? unit.gradient(weight) : o.dweight;
  if (bias == kAbsent) {
    ops.rms_norm_backward(shape, {.x = o.x,
                                  .statistics = o.statistics,
                                  .weight = unit.parameter(weight),
                                  .dy = o.dy,
                                  .dx = o.dx,
                                  .dweight = dweight});
    return;
  }
  ops.layer_norm_backward(shape, {.x = o.x,
                                  .statistics = o.statistics,
                                  .gamma = unit.parameter(weight),
                                  .dy = o.dy,
                                  .dx = o.dx,
                                  .dgamma = dweight,
                                  .dbeta = o.dbias.empty() ? unit.gradient(bias) : o.dbias});
}

}  // namespace zero
