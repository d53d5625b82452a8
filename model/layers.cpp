// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace zero {
namespace {

View parameter(const ParameterLease& unit, int slot) {
  return slot == kAbsent ? View() : unit.at(slot);
}

View parameter(const GradientLease& unit, int slot) {
  return slot == kAbsent ? View() : unit.parameter(slot);
}

template <class Lease>
NormForward with_parameters(const NormLayer& norm, const Lease& unit,
                            const NormLayer::Operands& o) {
  return {.x = o.x,
          .delta = o.delta,
          .sum = o.sum,
          .weight = parameter(unit, norm.weight),
          .bias = parameter(unit, norm.bias),
          .y = o.y,
          .statistics = o.statistics,
          .epsilon = norm.epsilon};
}

}  // namespace

void NormLayer::forward(Ops& ops, const ParameterLease& unit, const Operands& o,
                        const Slices::Range& rows) const {
  forward(ops, with_parameters(*this, unit, o), rows);
}

void NormLayer::forward(Ops& ops, const GradientLease& unit, const Operands& o,
                        const Slices::Range& rows) const {
  forward(ops, with_parameters(*this, unit, o), rows);
}

void NormLayer::forward(Ops& ops, const NormForward& whole, const Slices::Range& rows) const {
  const auto cut = [&](View& view, std::int64_t width) {
    if (!view.empty()) view = view.slice(rows.begin * width, rows.count * width);
  };
  NormForward part = whole;
  for (View* const view : {&part.x, &part.delta, &part.sum, &part.y}) cut(*view, shape.columns);
  cut(part.statistics, statistics());
  ops.norm_forward({rows.count, shape.columns, shape.dtype}, part);
}

void NormLayer::apply(Ops& ops, const GradientLease& unit, const Operands& o) const {
  ops.norm_apply(shape, with_parameters(*this, unit, o));
}

void NormLayer::backward(Ops& ops, const GradientLease& unit, const Gradient& o) const {
  View dbias = o.dbias;
  if (bias != kAbsent && dbias.empty()) dbias = unit.gradient(bias);
  ops.norm_backward(shape, {.x = o.x,
                            .statistics = o.statistics,
                            .weight = unit.parameter(weight),
                            .dy = o.dy,
                            .dx = o.dx,
                            .dweight = o.dweight.empty() ? unit.gradient(weight) : o.dweight,
                            .dbias = dbias});
}

}  // namespace zero
