// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "device/device.h"
#include "engine/engine_options.h"
#include "engine/state_home.h"
#include "engine/tier_options.h"
#include "engine/unit.h"

namespace zero {

/// The objects that the strategies work with. All outlive them.
struct EngineResources {
  Communicator& shards;  ///< the ranks among which the model states are divided
  Device& device;
  const EngineOptions& options;
  DType gradient;  ///< dtype of finished gradients
  int moments;     ///< of the optimizer
  int accumulation_steps;
  Communicator& replicate;  ///< the replicate axis: the ranks that hold the same shard

  /// Without overlap, makes the compute stream wait for the collective just submitted.
  void wait_unless_overlapped() const {
    if (!options.overlap) device.compute().wait(device.communication().record());
  }
};

/// Where each kind of values of a segment lives; null: in the device's memory.
struct SegmentHomes {
  StateHome* states = nullptr;      ///< master values and moments
  StateHome* parameters = nullptr;  ///< the shard, if the stage keeps one
};

/// A stage of ZeRO as a strategy: the placement of model states and the collectives that gather,
/// publish and finish them. No other part of the engine knows the stage. Table 1 of Rajbhandari et
/// al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020).
class Sharding {
 public:
  explicit Sharding(EngineResources resources) : resources_(resources) {}
  virtual ~Sharding() = default;
  Sharding(const Sharding&) = delete;
  Sharding& operator=(const Sharding&) = delete;

  /// Allocates all storage of a segment, or reserves it in `homes`, and sets its views.
  void allocate(Segment& segment, const std::string& unit, const SegmentHomes& homes = {});

  /// Elements of the segment that a gather brings to a window; 0: nothing is gathered around
  /// compute.
  virtual std::int64_t window_elements(const Segment& segment) const = 0;
  /// Elements of the compute copies that live in memory between steps. Where shards may live in a
  /// file none counts, although some may stay (TierOptions::parameters_in_memory).
  virtual std::int64_t kept_elements(const Segment& segment) const = 0;
  /// This rank's part of what a gather of the segment brings: the first elements of its shard,
  /// maybe none. May be in a file.
  View gathered_part(const Segment& segment) const;
  /// Makes the segment's window hold its full large parameters: collectives on the communication
  /// stream. `mine`: gathered_part(), or its values elsewhere in memory.
  virtual void gather(const Segment& segment, View mine, View window, const Tag& tag);
  /// The full parameters [begin, begin + count) of the layout, given the segment's window (empty
  /// if nothing is gathered).
  virtual View parameters(const Segment& segment, View window, std::int64_t begin,
                          std::int64_t count) const;
  /// Updates the copies that live between steps, on the communication stream, after this rank's
  /// part of the compute copies has changed. That part is read from the shard or, if the shard is
  /// away, from `tail`.
  /// Traffic of step n + 1, because step() has closed the count of step n.
  virtual void publish(Segment& segment, const Tag& tag) = 0;
  /// Called after the last reduce of a step has written gradient_shard.
  virtual void finish_gradient(Segment& segment, const Tag& tag) = 0;
  /// Elements that publish() and finish_gradient() gather, for Engine::planned_axes().
  virtual std::int64_t published_elements(const Segment& segment) const = 0;
  virtual std::int64_t finished_elements(const Segment& segment) const = 0;
  /// Updates all of `states`, values of the flat elements `range`, after those of this rank's shard
  /// were replaced from outside.
  virtual void spread_states(View states, const Segment& segment, const FlatRange& range,
                             const Tag& tag);
  /// Whether full gradients live between micro-batches, so that they can accumulate locally
  /// (ReductionPolicy::boundary).
  virtual bool full_gradients() const = 0;
  /// Whether a micro-batch's gradient can be written to the finished gradient's memory, without a
  /// window.
  bool direct_gradients(const Unit& unit) const;
  /// Call before this rank changes its part of the compute copies that live between steps, unless a
  /// collective that peers start behind their last use came before: ranks of a host may share them.
  /// Collective, named `call`; blocks the host.
  void wait_for_peers(std::string_view call);
  /// The kind of traffic that a reduce is counted as.
  virtual Operation reduce_traffic() const { return Operation::reduce_scatter; }

 protected:
  /// Also sets the elements that this rank initialises and updates (Segment::own). `home`: of the
  /// shard; may be null.
  virtual void place_parameters(Segment& segment, const std::string& unit, StateHome* home) = 0;
  virtual void place_gradients(Segment& segment, const std::string& unit) = 0;

  /// Zeroed memory for the segment, from the communicator (Communicator::allocate).
  View allocate(Segment& segment, std::int64_t count, DType dtype, MemoryClass memory_class,
                const std::string& label);
  View keep(Segment& segment, Buffer buffer);
  void place_states(Segment& segment, const std::string& unit, StateHome* home);
  void place_partials(Segment& segment, const std::string& unit);
  /// Those of the flat elements `range` that are in this rank's shard.
  View shard_part(const Segment& segment, const FlatRange& range) const;
  Stream& communication() { return resources_.device.communication(); }
  std::int64_t shard_begin(const Segment& segment) const {
    return segment.layout.shard() * resources_.shards.rank();
  }

  EngineResources resources_;
  bool in_common_ = false;  ///< ranks of a host share compute copies
};

/// Every rank's part of the flat elements `range`, laid out from the start of `buffer`.
Slices owned_slices(const FlatLayout& layout, const FlatRange& range, View buffer);

/// The strategy of `resources.options.stage`; throws zero::Error on a stage other than 0 to 3.
std::unique_ptr<Sharding> make_sharding(EngineResources resources);

/// The number of fp32 sums of earlier micro-batches that the binary counter holds at once over
/// `micro_batches` of them: floor(log2(micro_batches)).
int held_partials(int micro_batches);

/// For each unit, whether values of it live below the device's memory: the same on all ranks.
struct TierUnits {
  std::vector<bool> states;
  std::vector<bool> parameters;
};

/// The units whose values `tiers` asks to have there. `units` are laid out; `order`: all of
/// them, that of updates. A unit that does not fit into what is left of a share, such as a wide
/// embedding, is passed over.
TierUnits units_away(std::span<const Unit> units, std::span<const int> order,
                     const Sharding& sharding, const TierOptions& tiers);

}  // namespace zero
