// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "engine/engine.h"
#include "optim/optimizer.h"

namespace zero::bench {

/// The options of engines that are measured: bf16, clipped, unchecked.
EngineOptions measured_options(int stage);

/// A model of equal units on an engine, bf16, one thread. Its compute is a given amount of
/// arithmetic within the first-level cache, twice as much in backward as in forward, and the
/// writes of its gradients. Every rank makes the same calls.
class SyntheticModel {
 public:
  /// Rounds of arithmetic in one unit's forward. At 0, gradients are not written either.
  struct Compute {
    std::int64_t rounds = 0;
  };

  /// `prefetch`: stage3_prefetch_bucket_size.
  SyntheticModel(Communicator& communicator, int units, std::int64_t elements, int stage,
                 std::optional<std::int64_t> prefetch = {});

  int stage() const { return engine_.options().stage; }
  std::string unit_name(std::ptrdiff_t unit) const;
  static Compute no_compute() { return {}; }
  /// The compute that takes about `seconds` over all units, forward and backward, on this machine;
  /// the same on all ranks.
  Compute compute_of(double seconds);

  /// One optimizer step of one micro-batch.
  void step(const Compute& compute);
  /// The compute of a step without engine and communication.
  void compute_alone(const Compute& compute);
  /// The gather of one unit at the start of a step; none at stage 0.
  void first_gather_alone();
  /// The reduction of one unit.
  void last_reduce_alone();
  /// The update of the elements that this rank owns.
  void update_alone();
  /// Adds the last step's exposed seconds of each unit to `per_unit`.
  void add_exposed(std::span<double> per_unit) const;
  /// Waits for all streams of all ranks.
  void settle();
  /// The largest `value` of all ranks.
  double slowest(double value);

 private:
  void arithmetic(std::int64_t rounds);
  std::int64_t owned() const;

  Communicator& communicator_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  std::vector<UnitId> units_;
  std::int64_t elements_;
  std::vector<float> tile_;
  std::unique_ptr<Optimizer> optimizer_;
  Buffer full_;       ///< bf16, one unit, padded
  Buffer workspace_;  ///< bf16: the slices received
  Buffer states_;     ///< fp32: master values and two moments of this rank's elements of all units
  Buffer copies_;     ///< bf16: gradient and compute copy of the same elements
};

}  // namespace zero::bench
