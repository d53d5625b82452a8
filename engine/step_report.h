// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "collectives/agreement.h"
#include "engine/counted_mesh.h"

namespace zero {

/// learning_rate and loss_scale must be equal on all ranks, as all that is given to
/// EngineStates::write() and restore(): a hash of them rides in the all-reduce of the step, and
/// where ranks differ step() throws the same error on all of them, before the update, naming the
/// first value that differs. The engine cannot go on then.
struct StepOptions {
  double learning_rate = 0;
  double loss_scale = 1;             ///< gradients are divided by it
  std::span<const double> losses{};  ///< this rank's loss of each micro-batch, already weighted.
                                     ///< step() sums those of all ranks exactly, one rank of each
                                     ///< tensor group. It reads them behind all submitted compute
                                     ///< work, which may still be writing them; they must live
                                     ///< until step() returns
  std::int64_t vote = 0;             ///< this rank's addend to StepReport::votes
};

/// Thrown by EngineStates::check_replicas; the same on all ranks.
class ReplicasDiffer : public Error {
 public:
  using Error::Error;
};

/// Values of a rank are lost, since its disk has failed (EngineStates::failure()); the same on all
/// ranks.
class ValuesLost : public AgreedError {
 public:
  using AgreedError::AgreedError;
};

/// The result of a step. Equal on all ranks, but for times, and bytes if tensor slices differ in
/// size.
struct StepReport {
  std::int64_t step = 0;     ///< from 1
  double loss = 0;           ///< exact sum of all StepOptions::losses, once for a tensor group
  double gradient_norm = 0;  ///< global, before clipping, after unscaling
  bool clipped = false;
  /// The parameter with a NaN or infinite finished gradient that comes first in the order of
  /// backward, or "loss" if only a loss was not finite: units by their last backward use, and in
  /// a unit the parameter that was registered last. The same at every stage and world. A finished
  /// gradient is the sum of all micro-batches, so which of them was the first is not known. The
  /// update was skipped.
  std::optional<std::string> nonfinite{};
  /// The lowest rank whose loss was not finite; else the owner of that gradient; -1: none.
  int nonfinite_rank = -1;
  /// The sum of all ranks' StepOptions::vote, by which ranks decide alike after the same step.
  std::int64_t votes = 0;
  double exposed_seconds =
      0;  ///< time the compute stream waited for collectives since the last step
  /// Time that an attached StateReader held training up since the last step: calls of it on the
  /// host, and updates that waited until it had read.
  double save_seconds = 0;
  /// Time that compute waited for values below the device's memory (TierOptions, and those of
  /// Engine::waits_for_tiers()) since the last step.
  double tier_seconds = 0;
  TrafficCounter traffic{};  ///< bytes this step used, per kind of collective
  MeshTraffic axes{};        ///< the same bytes, by axis of the mesh
};

}  // namespace zero
