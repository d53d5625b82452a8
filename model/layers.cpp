// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/layers.h"

namespace zero {
namespace {

NormForward with_parameters(const NormLayer& norm, const Lease& unit,
                            const NormLayer::Operands& o) {
  return {.x = o.x,
          .delta = o.delta,
          .sum = o.sum,
          .weight = unit.at(norm.weight),
          .bias = norm.bias == kAbsent ? View() : unit.at(norm.bias),
          .y = o.y,
          .statistics = o.statistics,
          .epsilon = norm.epsilon,
          .plus_one = norm.plus_one};
}

}  // namespace

void HeadNormLayer::forward(Ops& ops, const Lease& unit, const Operands& o) const {
  ops.head_norm_forward(shape, {.x = o.x,
                                .query_weight = unit.at(query),
                                .key_weight = unit.at(key),
                                .y = o.y,
                                .statistics = o.statistics,
                                .epsilon = epsilon,
                                .plus_one = plus_one});
}

void HeadNormLayer::backward(Ops& ops, const GradientLease& unit, const Gradient& o) const {
  ops.head_norm_backward(shape, {.x = o.x,
                                 .statistics = o.statistics,
                                 .query_weight = unit.parameter(query),
                                 .key_weight = unit.parameter(key),
                                 .dy = o.dy,
                                 .dquery = o.dquery.empty() ? unit.gradient(query) : o.dquery,
                                 .dkey = o.dkey.empty() ? unit.gradient(key) : o.dkey,
                                 .plus_one = plus_one});
}

NormForward NormLayer::part(const Lease& unit, const Operands& o, const Slices::Range& rows) const {
  const auto cut = [&](View& view, std::int64_t width) {
    if (!view.empty()) view = view.slice(rows.begin * width, rows.count * width);
  };
  NormForward part = with_parameters(*this, unit, o);
  for (View* const view : {&part.x, &part.delta, &part.sum, &part.y}) cut(*view, shape.columns);
  cut(part.statistics, statistics());
  return part;
}

void NormLayer::forward(Ops& ops, const Lease& unit, const Operands& o,
                        const Slices::Range& rows) const {
  ops.norm_forward({rows.count, shape.columns, shape.dtype}, part(unit, o, rows));
}

void NormLayer::apply(Ops& ops, const Lease& unit, const Operands& o) const {
  ops.norm_apply(shape, with_parameters(*this, unit, o));
}

void NormLayer::apply(Ops& ops, const Lease& unit, const Operands& o,
                      const Slices::Range& rows) const {
  ops.norm_apply({rows.count, shape.columns, shape.dtype}, part(unit, o, rows));
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
                            .dbias = dbias,
                            .plus_one = plus_one});
}

}  // namespace zero
