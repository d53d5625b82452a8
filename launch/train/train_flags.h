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

}  // namespace zero
