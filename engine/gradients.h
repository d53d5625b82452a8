// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/gathers.h"
#include "engine/sharding.h"
#include "engine/unit.h"
#include "engine/waits.h"

namespace zero {

/// Sums a unit's gradients over ranks and micro-batches into the owner's shard, in the fixed binary
/// tree: over ranks inside a reduce-scatter, over micro-batches like a binary counter (equal levels
/// merge; at the end leftovers fold, newest first). If the mesh has a replicate axis, the
/// reduce-scatter's fp32 sum goes through an all-reduce along it before micro-batches are added:
/// for a shard axis of a power of two that is the tree over all ranks. The squares of the finished
/// gradient are summed while it is written. Reductions run on the communication stream (one rank:
/// compute); local sums of ReductionPolicy::boundary, and rounding to wire_dtype(), on the compute
/// stream.
class GradientReducer {
 public:
  GradientReducer(EngineResources resources, Sharding& sharding, const Waits& waits);

  /// Allocates the receive slices, and the sums along the replicate axis, for the largest reduction
  /// of `units` (class communication).
  void allocate(const std::vector<Unit>& units);
  /// Dtype of a unit's gradient window: fp32 if several backward uses add to it (Unit::sums_uses),
  /// else the compute dtype.
  DType window_dtype(const Unit& unit) const;

  /// Takes over `source` (padded elements of window_dtype()), the gradient of this rank's
  /// micro-batch number `micro_batch`. Returns the event after which `source` may be rewritten.
  Event reduce(Unit& unit, View source, int micro_batch);

  /// Sum of squares of this rank's finished gradient shards, without Segment::excluded;
  /// zero on ranks other than the first of the replicate axis. For work of the communication
  /// stream, which follows every reduction.
  ExactSum& norm() { return *norm_; }
  /// Recomputes norm() from the shards of `units` after finished gradients were changed from
  /// outside. Reads each shard once.
  void recount_norm(const std::vector<Unit>& units);

  /// Elements per rank of one reduce-scatter of `segment`: the bucket and the receive limit bound
  /// it.
  std::int64_t chunk(const Segment& segment) const;
  /// The same of a layout, with `replicas` along the replicate axis, over ranks of `backend`.
  static std::int64_t chunk(const FlatLayout& layout, int replicas, DType wire,
                            const ScheduleLimits& limits, const PieceSizes& pieces,
                            BackendKind backend);
  /// Dtype of gradients as they cross ranks.
  DType wire_dtype() const;

 private:
  /// Where the sum of all ranks' gradients of one micro-batch goes, and the partial sums of earlier
  /// micro-batches that are added to it on the way.
  struct Target {
    std::vector<View> addends;
    View destination;
    bool finished = false;
  };

  View place_of_wire(const Segment& segment, View source) const;
  View to_wire(Unit& unit, View source);
  void accumulate_locally(Segment& segment, View source, int micro_batch);
  Target merge(Segment& segment, int micro_batch);
  bool alone() const;
  ReduceEpilogue epilogue_of(const Segment& segment, const Target& target) const;
  void reduce_chunks(Unit& unit, View wire, const Target& target);
  Event reduce_to(Unit& unit, View wire, const Target& target);

  EngineResources resources_;
  Sharding& sharding_;
  const Waits& waits_;
  std::shared_ptr<ExactSum> norm_ = std::make_shared<ExactSum>();
  Buffer receive_;
  Buffer sums_;  ///< fp32, one chunk: for the all-reduce along the replicate axis
};

/// The gradients of units in a micro-batch, from the first lease that writes one to the start of
/// its reduction.
class LeasedGradients {
 public:
  /// All must outlive this.
  LeasedGradients(const EngineResources& resources, Gathers& gathers, GradientReducer& reducer,
                  const Waits& waits, std::span<Unit> units)
      : resources_(resources), gathers_(gathers), reducer_(reducer), waits_(waits), units_(units) {}

  /// Makes the memory of the gradient ready before the first write of the micro-batch.
  void prepare(const ScheduleStep& step);
  /// The memory of a parameter's gradient, for the caller to write or, in later uses, to add to;
  /// empty for frozen parameters.
  View gradient(const ScheduleStep& step, int index);
  /// After the last write of the micro-batch: completes the gradient, with zeros for parameters
  /// whose gradient was not asked for, and starts its reduction.
  void finish(const ScheduleStep& step, int micro_batch);

 private:
  Unit& unit_of(const ScheduleStep& step) const {
    return units_[static_cast<std::size_t>(step.use.unit.index)];
  }
  View whole(const ScheduleStep& step) const;
  void zero_padding(const Segment& segment, const View& whole);

  EngineResources resources_;
  Gathers& gathers_;
  GradientReducer& reducer_;
  const Waits& waits_;
  std::span<Unit> units_;
};

}  // namespace zero
