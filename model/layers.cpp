// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace zero {

void LinearLayer::forward(Ops& ops, const ParameterLease& unit, View x, View y) const {
  ops.linear_forward(shape, x, unit.at(weight), bias == kAbsent ? View() : unit.at(bias), y);
}

void LinearLayer::backward_weight(Ops& ops, const GradientLease& unit, View x, View dy) const {
  ops.linear_backward_weight(shape, x, dy, unit.gradient(weight), Write::overwrite);
}

void LinearLayer::backward_bias(Ops& ops, const GradientLease& unit, View dy) const {
  if (bias == kAbsent) return;
  ops.column_sums({shape.rows, shape.out, shape.dtype}, dy, unit.gradient(bias));
}

void LinearLayer::backward_input(Ops& ops, const GradientLease& unit, View dy, View dx) const {
  ops.linear_backward_input(shape, dy, unit.parameter(weight), dx);
}

void NormLayer::forward(Ops& ops, const ParameterLease& unit, const Operands& o) const {
  normalise(ops, {unit.at(weight), bias == kAbsent ? View() : unit.at(bias)}, o);
}

void NormLayer::forward(Ops& ops, const GradientLease& unit, const Operands& o) const {
  normalise(ops, {unit.parameter(weight), bias == kAbsent ? View() : unit.parameter(bias)}, o);
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
  if (bias == kAbsent) {
    ops.rms_norm_backward(shape, {.x = o.x,
                                  .statistics = o.statistics,
                                  .weight = unit.parameter(weight),
                                  .dy = o.dy,
                                  .dx = o.dx,
                                  .dweight = unit.gradient(weight)});
    return;
  }
  ops.layer_norm_backward(shape, {.x = o.x,
                                  .statistics = o.statistics,
                                  .gamma = unit.parameter(weight),
                                  .dy = o.dy,
                                  .dx = o.dx,
                                  .dgamma = unit.gradient(weight),
                                  .dbeta = unit.gradient(bias)});
}

}  // namespace zero
