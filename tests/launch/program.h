// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launch/process/exit_status.h"
#include "tests/launch/shell.h"
#include "tests/launch/tiny_run.h"

/// zero_train as users start it, on a tiny model.
namespace zero::testing {

inline const std::string kTrain = ZERO_TRAIN;
inline const std::string kJob =
    std::string(ZERO_MPIEXEC) + " --allow-run-as-root --oversubscribe --bind-to none ";

inline Outcome shell(const TinyRun& run, const std::string& command) {
  return shell(run.folder(), command);
}

inline Outcome alone(const TinyRun& run, const std::string& arguments) {
  return shell(run, kTrain + " --config " + run.config() + " " + arguments);
}

inline Outcome job(const TinyRun& run, int ranks, const std::string& arguments) {
  return shell(run, kJob + "-np " + std::to_string(ranks) + " " + kTrain + " --config " +
                        run.config() + " " + arguments);
}

}  // namespace zero::testing
