// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/lease.h"
#include "model/ops.h"

namespace zero {

/// The position of a parameter in its unit's list; kAbsent: the layer has none.
inline constexpr int kAbsent = -1;

/// y = x W + bias over a lease. A value type; the shape is this rank's.
struct LinearLayer {
  LinearShape shape;
  int weight = kAbsent;
  int bias = kAbsent;

  void prepare(Ops& ops) const { ops.prepare(shape, Ops::LinearUse::training); }
  void forward(Ops& ops, const ParameterLease& unit, View x, View y) const;
  /// Writes the weight's gradient.
  void backward_weight(Ops& ops, const GradientLease& unit, View x, View dy) const;
  /// Writes the bias's gradient, where there is one.
  void backward_bias(Ops& ops, const GradientLease& unit, View dy) const;
  void backward_input(Ops& ops, const GradientLease& unit, View dy, View dx) const;
};

/// A layer norm, or, without a bias, an RMS norm, over a lease. A value type.
struct NormLayer {
  MatrixShape shape;
  int weight = kAbsent;
  int bias = kAbsent;  ///< absent: an RMS norm
  float epsilon = 1e-5F;

  /// fp32 figures that forward leaves for a row.
  std::int64_t statistics() const { return bias == kAbsent ? 1 : 2; }

  /// As LayerNormForward's.
  struct Operands {
    View x, delta, sum, y, statistics;
  };
  void forward(Ops& ops, const ParameterLease& unit, const Operands& operands) const;
  void forward(Ops& ops, const GradientLease& unit, const Operands& operands) const;
  /// y again, from x and statistics alone.
  void apply(Ops& ops, const GradientLease& unit, const Operands& operands) const;
  /// Adds to dx; writes the parameters' gradients.
  struct Gradient {
    View x, statistics, dy, dx;
  };
  void backward(Ops& ops, const GradientLease& unit, const Gradient& operands) const;

 private:
  struct Weights {
    View weight, bias;
  };
  void normalise(Ops& ops, const Weights& weights, const Operands& operands) const;
};

}  // namespace zero
