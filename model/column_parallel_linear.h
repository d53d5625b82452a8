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
  LinearShape rows(std::int64_t count) const;
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

}  // namespace zero
