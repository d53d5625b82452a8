// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/lease.h"
#include "model/layers.h"
#include "model/tensor_parallel.h"
#include "partition/parameter_spec.h"

namespace zero {

/// y = x W + bias, its inputs cut over a tensor group (Shoeybi et al. 2019): each rank holds its
/// columns of x and computes a partial y; the sum over ranks is y. Every rank holds the bias, the
/// first adds it. A value type over leases.
class RowParallelLinear {
 public:
  struct Options {
    LinearShape whole;  ///< of the layer over all ranks
    LinearSlots at;
    std::string name;  ///< names its communication in errors, records and traces
    /// This rank's inputs; empty: an even share, the longer ones first.
    std::vector<TensorSlice::Range> inputs{};
  };

  RowParallelLinear() = default;
  /// `tensor` must outlive the layer. Throws zero::Error if there are fewer inputs than ranks.
  RowParallelLinear(TensorParallel& tensor, Options options);

  /// This rank's part of the weight, and the bias, which is the same on all ranks.
  ParameterSpec weight(std::string name, Init init) const;
  ParameterSpec bias(std::string name) const;
  /// The part that this rank computes.
  const LinearShape& shape() const { return shape_; }

  void prepare(Ops& ops) const;
  /// Bytes that this rank sends for a forward and a backward.
  TrafficCounter traffic() const;

  /// y has this rank's own rows; `partial`, this rank's addend of all rows, may be y itself without
  /// sequence parallelism.
  struct Forward {
    View x;
    View partial, y;
  };
  /// Each chunk is summed over ranks while the next is computed.
  void forward(Ops& ops, const Lease& unit, const Forward& operands) const;
  /// The same for one chunk of rows; returns the event of its sum, for which compute has not
  /// waited.
  Event forward(Ops& ops, const Lease& unit, const Forward& operands, int chunk) const;

  /// With sequence parallelism dy has this rank's own rows, and `gathered` receives all rows;
  /// otherwise `gathered` is dy itself.
  struct BackwardInput {
    View dy, gathered;
    View dx;
  };
  void backward_input(Ops& ops, const GradientLease& unit, const BackwardInput& operands) const;
  /// The same for x = gelu(z): dx becomes the gradient of z, and dbias its column sums.
  struct ThroughGelu {
    View z, x;  ///< x is recomputed; empty: not
    View dbias;
  };
  void backward_input(Ops& ops, const GradientLease& unit, const BackwardInput& operands,
                      const ThroughGelu& gelu) const;
  /// Writes the gradients of the weight and of the bias, if any; that of the bias is the same on
  /// all ranks. dy has all rows: `gathered` of backward_input.
  void backward_parameters(Ops& ops, const GradientLease& unit, View x, View dy) const;

 private:
  LinearShape rows(std::int64_t count) const;

  TensorParallel* tensor_ = nullptr;
  LinearShape shape_;
  std::int64_t inputs_ = 0;  // of all ranks
  LinearSlots at_;
  std::string name_;
  std::vector<TensorSlice::Range> ranges_;
};

}  // namespace zero
