// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

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

/// Starts a long job, waits until it trains, and runs `disturb`; gives the job's outcome.
inline Outcome disturbed(const TinyRun& run, const std::string& start, const std::string& disturb,
                         const std::string& arguments = "") {
  // A shell has what it starts in the background ignore SIGINT; nohup may have started the tests.
  const std::string script = "env --default-signal=INT,HUP " + start + " --config " + run.config() +
                             " --set run.steps=1000000 " + arguments + " & job=$!; " +
                             "until [ -s " + run.folder().path("run.log") +
                             " ] || ! kill -0 $job; do sleep 0.1; done; " + disturb + "; wait $job";
  run.folder().write("script.sh", script);
  return shell(run, "bash " + run.folder().path("script.sh"));
}

/// For disturbed(): three ranks, told by variables where they meet; the first is the job. `set` is
/// for all of them, and to be given to disturbed() too.
inline std::string ranks_without_launcher(const TinyRun& run, const std::string& set) {
  const std::string common = " WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                             std::to_string(30000 + static_cast<int>(::getpid() % 2000)) + " ";
  const std::string script = "for rank in 2 1; do env RANK=$rank LOCAL_RANK=$rank" + common +
                             kTrain + " --config " + run.config() +
                             " --set run.steps=1000000 --set " + set + " & done\n" +
                             "exec env RANK=0 LOCAL_RANK=0" + common + kTrain + " \"$@\"\n";
  run.folder().write("ranks.sh", script);
  return "bash " + run.folder().path("ranks.sh");
}

}  // namespace zero::testing
