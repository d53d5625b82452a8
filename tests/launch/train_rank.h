// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "launch/data/batches.h"
#include "launch/telemetry/instruments.h"
#include "launch/telemetry/output.h"
#include "launch/train/trainer.h"

namespace zero::testing {

/// One rank's run, silent; the first rank writes the log.
inline void train_rank(const TrainConfig& config, Communicator& world, Device& device,
                       Instruments* instruments = nullptr) {
  const Batches batches(config, world.rank());
  Console console(stdout, Console::Mode::silent);
  const auto log = world.rank() == 0 ? std::make_unique<RunLog>(config.run.log) : nullptr;
  Mesh mesh(world, config.mesh);
  Trainer({.config = config,
           .batches = batches,
           .mesh = mesh,
           .device = device,
           .console = console,
           .log = log.get(),
           .instruments = instruments})
      .run();
}

}  // namespace zero::testing
