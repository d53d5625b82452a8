// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.h"
#include "engine/engine.h"
#include "model/decoder.h"

namespace zero::bench {

/// A GPT-2 over bytes in a world of one, on whatever device.
class SmallGpt2 {
 public:
  struct Sizes {
    std::int64_t layers = 12;
    std::int64_t width = 128;
    std::int64_t heads = 4;
    BatchShape batch{.batch = 8, .sequence = 256};
  };
  SmallGpt2(std::unique_ptr<Device> device, const EngineOptions& options, const Sizes& sizes);

  Engine& engine() { return engine_; }
  /// Forward and backward of a micro-batch; returns behind their compute.
  void train();
  /// train(), then the update.
  StepReport step();

 private:
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Device> device_;
  Engine engine_;
  Decoder model_;
  std::vector<std::int32_t> tokens_;
  double loss_ = 0;
};

}  // namespace zero::bench
