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
  bool json = false;
  bool profile = false;  ///< as run.profile
  std::string trace{};   ///< as run.trace
  std::string error{};   ///< the error in the command line
  int world = 0;         ///< of --plan and --print-config; 0: as started
  int local_ranks = kNoLocalRanks;
  Start start{};  ///< how the program was started
};

/// The text of --print-config.
std::string printed_config(const TrainFlags& flags, int world);
/// The text of --plan.
std::string printed_plan(const TrainFlags& flags, int world);

/// Trains, as the rank, or ranks, that this process is. Returns the exit status:
/// failures that all ranks know of are reported by the first and end in good order; a failure that
/// only this rank knows of is reported by it and ends all ranks at once.
int train(const TrainFlags& flags, int* argc, char*** argv);

/// Reports an error that maybe only this rank knows of and ends all ranks. A rank waits for those
/// below it: if several fail alike, the first has then ended the job before the others speak.
[[noreturn]] void end_job(const std::string& message, int rank, int world);

}  // namespace zero
