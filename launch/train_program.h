// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace zero {

/// What zero_train is asked to do.
struct TrainFlags {
  std::string config;
  std::vector<std::string> overrides;
  bool print_config = false;
  bool plan = false;
  bool json = false;
  int world = 0;  ///< of --plan and --print-config; 0: as started
};

/// The text of --print-config.
std::string printed_config(const TrainFlags& flags, int world);
/// The text of --plan.
std::string printed_plan(const TrainFlags& flags, int world);

/// Trains, as one rank of the world that the process was started in. Returns the exit status:
/// failures that all ranks know of are reported by the first and end in good order. Throws where
/// only this rank knows.
int train(const TrainFlags& flags, int* argc, char*** argv);

}  // namespace zero
