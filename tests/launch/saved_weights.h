// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "collectives/backends.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

namespace zero::testing {

/// A folder with the first weights of a TinyRun.
class SavedWeights {
 public:
  SavedWeights() {
    const TrainConfig config = make_train_config(
        Configuration::read(run_.config(), {"run.steps=0", "run.save_weights=" + folder()}), 1);
    train_rank(config, *local::single(), *cpu::open());
  }
  std::string folder() const { return run_.folder().path("weights/"); }

 private:
  TinyRun run_;
};

}  // namespace zero::testing
