// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "engine/schedule.h"
#include "engine/tier_options.h"
#include "optim/optimizer_config.h"

namespace zero {

/// When gradients cross ranks.
enum class ReductionPolicy : std::uint8_t {
  every_micro_batch,  ///< each micro-batch is reduced into the owner's shard: the same bits for any
                      ///< power-of-two world
  boundary,           ///< stages 0, 1: accumulate locally, reduce once a step
};
std::string_view name_of(ReductionPolicy policy);

/// The options of an Engine; fixed at seal().
struct EngineOptions {
  int stage = 3;                ///< 0..3
  DType compute = DType::fp32;  ///< fp32, bf16 or fp16: parameters in compute, and gradients of one
                                ///< micro-batch; fp16 wants StepOptions::loss_scale
  std::optional<DType> gradient{};  ///< finished gradients; unset: as `compute`
  ReductionPolicy reduction = ReductionPolicy::every_micro_batch;
  OptimizerConfig optimizer{};
  std::vector<ParameterGroup> groups{};
  double gradient_clipping = 0.0;  ///< largest global norm; 0: none
  ScheduleLimits limits{};  ///< prefetch, live elements, persistence, reuse, bucket; in elements
  bool overlap = true;      ///< false: compute waits for every collective when it is issued
  bool graphs = true;       ///< the work of Lease::repeat is captured as graphs (CUDA)
  TierOptions tiers{};      ///< of states below the device's memory
  std::uint64_t seed = 0;
  /// Steps between two calls of EngineStates::check_replicas() by step(); 0: never.
  int replica_check_every = 0;
  bool checked =
#ifdef ZERO_CHECKED
      true;
#else
      false;
#endif  ///< poison released windows and unwritten gradients with NaN
};
/// Throws zero::Error naming an option that is out of range, its value and what it must be. The
/// constructor of Engine calls it.
void validate(const EngineOptions& options);

/// Is told on the host thread how far a long pass over a rank's values is: `done` of `all`
/// elements, ascending, the last time with all of them done. Empty: nobody is.
using PassProgress = std::function<void(std::int64_t done, std::int64_t all)>;

/// Given to Engine::seal().
struct SealOptions {
  /// The uses of one micro-batch; empty: every unit forward in registration order, then backward in
  /// reverse.
  std::vector<Use> order{};
  int accumulation_steps = 1;
  PassProgress initialising{};  ///< told of the initial values
};

}  // namespace zero
