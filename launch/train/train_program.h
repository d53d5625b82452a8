// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "launch/rendezvous/start.h"

namespace zero {

/// The arguments of zero_train.
struct TrainFlags {
  std::string config;
  std::vector<std::string> overrides;
  bool print_config = false;
  bool plan = false;
  bool labels = false;        ///< with --plan: name every tensor that is live at the peak
  bool schedule = false;      ///< with --plan: every action of a micro-batch
  std::string print_value{};  ///< the key; empty: none
  bool json = false;
  bool profile = false;        ///< overrides run.profile
  std::string trace{};         ///< overrides run.trace
  std::string memory_trace{};  ///< overrides run.memory_trace
  std::string error{};         ///< the error in the command line
  std::string simulate{};      ///< "ranks=1024,cluster=FILE"; empty: nothing is simulated
  int world = 0;               ///< for --plan and --print-config; 0: the world that was started
  int local_ranks = kNoLocalRanks;
  int local_rank = -1;  ///< of a launcher; -1: not given
  Start start{};        ///< how the program was started
};

/// The text of --print-config.
std::string printed_config(const TrainFlags& flags, int world);
/// The text of --print-value: as the file and --set give it, which no launcher or world can change.
std::string printed_value(const TrainFlags& flags);
/// The answer to --plan.
struct PrintedPlan {
  std::string text{};
  std::string over_limit{};  ///< by how much the plan exceeds run.memory_limit; empty: it does not
};
PrintedPlan printed_plan(const TrainFlags& flags, int world);

/// Trains, as the rank or ranks of this process. Returns the exit status. If all ranks know of a
/// failure, the first rank reports it and all end in good order; if only this rank knows, it
/// reports the failure and ends all ranks at once.
int train(const TrainFlags& flags, int* argc, char*** argv);

}  // namespace zero
