// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "launch/workbench.h"

namespace zero::bench {

/// A training run as sections measure it; the rest is zero_train's default.
struct StepSetup {
  nlohmann::json model = "gpt2-124m";  ///< as zero_train has it
  std::int64_t batch = 4;  ///< sequences of a step, over all ranks, one micro-batch a group
                           ///< of mesh.tensor ranks
  std::int64_t sequence = 512;
  DType dtype = DType::bf16;
  int stage = 0;
  int threads = 1;
  int world = 1;
  int tensor = 1;                        ///< ranks of the mesh's tensor axis
  std::vector<std::string> overrides{};  ///< key=value, as zero_train's --set
};
TrainConfig make_config(const StepSetup& setup);

/// FLOP of the model's own arithmetic for a token: six for each parameter, and causal attention.
double flop_per_token(const TrainConfig& config);

/// Optimizer steps on random tokens. Constructing it, and its steps, are collective over
/// `communicator`; all arguments must outlive it.
class Stepper {
 public:
  Stepper(const TrainConfig& config, Communicator& communicator, Device& device,
          OpListener* listener = nullptr);

  /// One step; returns when this rank's part is done, gathers for the next step may still run.
  StepReport step();
  /// Seconds of `count` steps, until the streams are at rest.
  double seconds(int count);
  Engine& engine() { return workbench_.engine(); }

 private:
  void fill(View tokens);

  const TrainConfig& config_;
  Device& device_;
  Mesh mesh_;
  Workbench workbench_;
  std::minstd_rand random_;
};

}  // namespace zero::bench
