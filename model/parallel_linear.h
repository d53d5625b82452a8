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

/// y = x W + bias, its outputs cut over a tensor group (Shoeybi et al. 2019): each rank computes
/// its columns of y from all rows of x, and a partial dx; the sum over ranks is dx. A value type
/// over leases.
///
///   ColumnParallelLinear up(tensor, {.whole = shape, .at = {0, 1}, .name = "up"});
///   engine.add_unit("mlp", {up.weight("up.weight", init::normal(0.02F)), up.bias("up.bias"),
///   ...});
class ColumnParallelLinear {
 public:
  struct Options {
    LinearShape whole;  ///< of the layer over all ranks
    LinearSlots at;
    std::string name;  ///< names its communication in errors, records and traces
    /// This rank's outputs; empty: an even share, the longer ones first.
    std::vector<TensorSlice::Range> outputs{};
    /// Other ranks that hold some of these outputs: their gradients are summed.
    struct Shared {
      Communicator* holders = nullptr;  ///< null: none
      Slices::Range outputs;            ///< within this rank's, adjacent; the same on all holders
    } shared{};
  };

  ColumnParallelLinear() = default;
  /// `tensor` must outlive the layer. Throws zero::Error if there are fewer outputs than ranks, or
  /// if shared outputs are not contiguous in memory (WeightLayout::in_out).
  ColumnParallelLinear(TensorParallel& tensor, Options options);

  /// This rank's part of the parameters.
  ParameterSpec weight(std::string name, Init init) const;
  ParameterSpec bias(std::string name) const;
  /// The shape of this rank's part.
  const LinearShape& shape() const { return shape_; }
  bool has_bias() const { return at_.bias != kAbsent; }
  /// The destination of the bias's gradient; empty: no bias.
  View bias_gradient(const GradientLease& unit) const {
    return has_bias() ? unit.gradient(at_.bias) : View();
  }

  void prepare(Ops& ops) const;
  /// Bytes that this rank sends for a forward and a backward.
  TrafficCounter traffic() const;

  /// With sequence parallelism x has this rank's own rows, and `gathered` first receives all rows;
  /// otherwise `gathered` is x itself.
  struct Forward {
    View x, gathered;
    View y;
    View gelu{};  ///< receives gelu(y), only for a layer with a bias; may be empty
  };
  void forward(Ops& ops, const Lease& unit, const Forward& operands) const;
  /// The same by chunks of rows, so that callers can interleave other work: gather() once x has the
  /// chunk's own rows, then, after its event, forward() of the chunk's rows.
  Event gather(const Forward& operands, int chunk) const;
  void forward(Ops& ops, const Lease& unit, const Forward& operands,
               const Slices::Range& range) const;

  /// dx has this rank's own rows; `partial`, this rank's addend of all rows, may be dx itself
  /// without sequence parallelism.
  struct Backward {
    View x, gathered;  ///< as in Forward: x is gathered again
    View dy;
    View partial, dx;
    View dbias{};  ///< bias_gradient(); empty: no bias, or already written along with dy
  };
  /// Computes dx and, while it is summed over ranks, the parameters' gradients.
  void backward(Ops& ops, const GradientLease& unit, const Backward& operands) const;

 private:
  /// Sums the gradients of shared outputs, `width` elements each, over their holders.
  Event sum_shared(View gradient, std::int64_t width) const;

  TensorParallel* tensor_ = nullptr;
  LinearShape shape_;
  std::int64_t outputs_ = 0;  // of all ranks
  LinearSlots at_;
  std::string name_;
  std::vector<TensorSlice::Range> ranges_;
  Options::Shared shared_;
};

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
    View z, x;  ///< x is recomputed, unless empty; may be z's memory
    View dbias;
  };
  void backward_input(Ops& ops, const GradientLease& unit, const BackwardInput& operands,
                      const ThroughGelu& gelu) const;
  /// Writes the gradients of the weight and of the bias, if any; that of the bias is the same on
  /// all ranks. dy has all rows: `gathered` of backward_input.
  void backward_parameters(Ops& ops, const GradientLease& unit, View x, View dy) const;

 private:
  TensorParallel* tensor_ = nullptr;
  LinearShape shape_;
  std::int64_t inputs_ = 0;  // of all ranks
  LinearSlots at_;
  std::string name_;
  std::vector<TensorSlice::Range> ranges_;
};

}  // namespace zero
