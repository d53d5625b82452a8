// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/backends.h"
#include "launch/train/run_device.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

// Training on the emulated GPU, for tests that move its values elsewhere.
namespace zero::testing {

inline EngineOptions gpu_options(int stage, DType compute, MomentFormat moments) {
  EngineOptions options{.stage = stage, .compute = compute, .gradient_clipping = 1.0};
  options.limits.persistence_threshold = 0;
  options.optimizer.moments = moments;
  return options;
}

/// The last line of the log of a run on two ranks, with these keys beside those of a bf16 model of
/// width 16.
inline nlohmann::json last_of(const TinyRun& run, const std::vector<std::string>& keys) {
  std::vector<std::string> overrides{"run.device=cuda", "model.width=16", "bf16.enabled=true",
                                     "train_batch_size=8", "data.validation=null"};
  overrides.insert(overrides.end(), keys.begin(), keys.end());
  cuda::emulated::reset({});
  local::run(2, [&](Communicator& ranks) {
    const TrainConfig config = make_train_config(Configuration::read(run.config(), overrides), 2);
    RunDevice device(config, ranks, nullptr);
    train_rank(config, device.world(), device.device());
  });
  cuda::emulated::reset();
  return run.log().back();
}

}  // namespace zero::testing
