// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "collectives/mesh.h"
#include "engine/engine.h"
#include "launch/config/train_config.h"
#include "launch/train/loss_scaling.h"
#include "launch/train/training_state.h"
#include "model/model.h"

namespace zero::bench {

/// A training run to measure; every other setting has zero_train's default.
struct StepSetup {
  nlohmann::json model = "gpt2-124m";  ///< in the syntax of zero_train
  std::int64_t batch = 4;  ///< sequences of a step, over all ranks, one micro-batch a group
                           ///< of mesh.tensor ranks
  std::int64_t sequence = 512;
  DType dtype = DType::bf16;
  int stage = 0;
  int threads = 1;
  int world = 1;
  int tensor = 1;                        ///< ranks of the mesh's tensor axis
  std::vector<std::string> overrides{};  ///< key=value, as for zero_train's --set
};
/// With the recompute plan that the setup asks for. Throws zero::Error if ranks that are threads of
/// one process are planned to use more than run.memory_limit.
TrainConfig make_config(const StepSetup& setup);

/// DecoderShape::flop_per_token at the run's sequence length.
double flop_per_token(const TrainConfig& config);

/// Runs optimizer steps on random tokens. Construction and steps are collective over
/// `communicator`; all arguments must outlive the stepper.
class Stepper {
 public:
  Stepper(const TrainConfig& config, Communicator& communicator, Device& device,
          UnitListener* listener = nullptr);

  /// Runs one step; returns once this rank's part is done. Gathers for the next step may still run.
  /// Throws AgreedError if fp16 overflows at the smallest loss scale.
  StepReport step();
  /// Seconds of `count` steps, up to idle streams.
  double seconds(int count);
  Engine& engine() { return training_state_.engine(); }
  /// How the device computes the model, where that is not what was asked for; may be empty.
  std::string note() { return training_state_.model().note(); }

 private:
  void fill(View tokens);

  const TrainConfig& config_;
  Device& device_;
  Mesh mesh_;
  TrainingState training_state_;
  LossScaling loss_scaling_;
  std::minstd_rand random_;
};

}  // namespace zero::bench
