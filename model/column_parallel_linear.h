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

/// y = x W + bias, its outputs cut over a tensor group (Shoeybi et al. 2019): a rank computes its
/// columns of y from all rows of x, and a part of dx, which is summed. A value type over leases.
///
///   ColumnParallelLinear up(tensor, {.whole = shape, .at = {0, 1}, .name = "up"});
///   engine.add_unit("mlp", {up.weight("up.weight", init::normal(0.02F)), up.bias("up.bias"),
///   ...});
class ColumnParallelLinear {
 public:
  struct Options {
    LinearShape whole;  ///< of the layer over all ranks
    LinearSlots at;
    std::string name;  ///< of its communication, in errors, records and traces
    /// Which outputs are this rank's; empty: an even share, the longer ones first.
    std::vector<TensorSlice::Range> outputs{};
    /// Ranks that hold some of these outputs too: their gradients are summed.
    struct Shared {
      Communicator* holders = nullptr;  ///< null: nobody
      Slices::Range outputs;            ///< of this rank's, adjacent; the same on all holders
    } shared{};
  };

  ColumnParallelLinear() = default;
  /// `tensor` must outlive the layer. Throws zero::Error if there are fewer outputs than ranks,
  /// and where outputs that are shared do not lie together (WeightLayout::in_out).
  ColumnParallelLinear(TensorParallel& tensor, Options options);

  /// This rank's part of the parameters.
  ParameterSpec weight(std::string name, Init init) const;
  ParameterSpec bias(std::string name) const;
  /// The part that this rank computes.
  const LinearShape& shape() const { return shape_; }
  bool has_bias() const { return at_.bias != kAbsent; }
  /// Where the bias's gradient goes; empty: there is no bias.
  View bias_gradient(const GradientLease& unit) const {
    return has_bias() ? unit.gradient(at_.bias) : View();
  }

  void prepare(Ops& ops) const;
  /// Bytes that this rank sends for a forward and a backward.
  TrafficCounter traffic() const;

  /// Under sequence parallelism x has this rank's own rows, and all of them are gathered first;
  /// else `gathered` is x itself.
  struct Forward {
    View x, gathered;
    View y;
    View gelu{};  ///< receives gelu(y), for a layer with a bias; empty: nothing
  };
  void forward(Ops& ops, const ParameterLease& unit, const Forward& operands) const;
  /// The same by chunks of rows, for a caller who has other work in between: gather() once x has
  /// the chunk's own rows, forward() of the chunk behind its event.
  Event gather(const Forward& operands, int chunk) const;
  void forward(Ops& ops, const ParameterLease& unit, const Forward& operands, int chunk) const;

  /// dx has this rank's own rows; `partial`, this rank's part of all of them, may be dx itself
  /// without sequence parallelism.
  struct Backward {
    View x, gathered;  ///< as forward's: x is gathered again
    View dy;
    View partial, dx;
    View dbias{};  ///< bias_gradient(); empty: the maker of dy has written it, or there is none
  };
  /// dx, and the parameters' gradients while dx is summed.
  void backward(Ops& ops, const GradientLease& unit, const Backward& operands) const;

 private:
  LinearShape rows(std::int64_t count) const;
  /// Rows [range) of all.
  void compute(Ops& ops, const ParameterLease& unit, const Forward& operands,
               const Slices::Range& range) const;
  /// Adds up what other ranks have of the gradient of shared outputs, each of `width` elements.
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
