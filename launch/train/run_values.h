// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/data/data_order.h"
#include "launch/telemetry/run_log.h"
#include "optim/loss_scaler.h"

namespace zero {

/// What a run keeps in a checkpoint beside the states (CheckpointIndex::extra).
struct RunValues {
  LogPoint log{};                      ///< its step is the checkpoint's
  std::int64_t tokens = 0;             ///< trained on so far
  DataPosition position{};             ///< behind the training data read so far
  std::vector<std::string> digests{};  ///< of the training files; "" for those not yet known
  nlohmann::ordered_json identity{};   ///< identity_of() the configuration
  std::int64_t micro_batch = 0;
  std::int64_t skipped_in_row = 0;  ///< steps without an update before the checkpoint
  std::optional<LossScaler::State> loss_scaler{};  ///< of fp16 runs
  std::string version{};                           ///< of the engine; not read
  std::string kernels{};

  nlohmann::ordered_json json() const;
  /// Reads what json() wrote. Checkpoints without a position are of runs that had one batch in all
  /// steps: position and tokens follow from their own configuration. Throws zero::Error naming the
  /// field that is missing or no such value.
  static RunValues read(const nlohmann::ordered_json& json);
};

}  // namespace zero
