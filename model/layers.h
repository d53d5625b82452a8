// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/slices.h"
#include "engine/lease.h"
#include "model/ops.h"

namespace zero {

/// The position of a parameter in its unit's list; kAbsent: the layer has none.
inline constexpr int kAbsent = -1;

/// The positions of a linear layer's parameters in their unit.
struct LinearSlots {
  int weight = kAbsent;
  int bias = kAbsent;
};

/// RMS norms of each head of q and of k (HeadNormShape), over a lease. A value type.
struct HeadNormLayer {
  HeadNormShape shape;
  int query = kAbsent;  ///< weights
  int key = kAbsent;
  float epsilon = 1e-5F;
  bool plus_one = false;  ///< weights are 1 + the parameters

  /// As in HeadNormForward.
  struct Operands {
    View x, y, statistics;
  };
  void forward(Ops& ops, const Lease& unit, const Operands& operands) const;
  /// As in HeadNormBackward; the weights' gradients go to the lease, or to the given views.
  struct Gradient {
    View x, statistics, dy;
    View dquery{}, dkey{};
  };
  void backward(Ops& ops, const GradientLease& unit, const Gradient& operands) const;
};

/// A layer norm or, without a bias, an RMS norm, over a lease. A value type.
struct NormLayer {
  MatrixShape shape;
  int weight = kAbsent;
  int bias = kAbsent;  ///< absent: an RMS norm
  float epsilon = 1e-5F;
  bool plus_one = false;  ///< the weight is 1 + the parameter

  int parameters() const { return bias == kAbsent ? 1 : 2; }
  /// The number of fp32 figures per row that forward writes.
  std::int64_t statistics() const { return bias == kAbsent ? 1 : 2; }

  /// As in NormForward.
  struct Operands {
    View x, delta, sum, y, statistics;
  };
  /// Some of the rows.
  void forward(Ops& ops, const Lease& unit, const Operands& operands,
               const Slices::Range& rows) const;
  /// Recomputes y from x and statistics, of all or some of the rows: the same bits as forward's.
  void apply(Ops& ops, const Lease& unit, const Operands& operands) const;
  void apply(Ops& ops, const Lease& unit, const Operands& operands,
             const Slices::Range& rows) const;
  /// Adds to dx; writes the parameters' gradients to the lease, or to the given views.
  struct Gradient {
    View x, statistics, dy, dx;
    View dweight{}, dbias{};
  };
  void backward(Ops& ops, const GradientLease& unit, const Gradient& operands) const;

 private:
  NormForward part(const Lease& unit, const Operands& operands, const Slices::Range& rows) const;
};

}  // namespace zero
