// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "launch/process/signals.h"
#include "launch/rendezvous/start.h"
#include "launch/telemetry/output.h"
#include "launch/train/run_progress.h"
#include "launch/watch/process_faults.h"

namespace zero {

class AgreedError;

/// The state of a process of zero_train that its signal handling reads.
struct TrainProcess {
  /// `launched`: as of ProcessFaults.
  explicit TrainProcess(int launched)
      : faults("zero_train", launched, [this] { return progress.next_step(); }) {}

  std::atomic<int> output_error{0};  ///< for which standard output lacks a text; 0: none
  RunProgress progress{};
  Signals signals{mpirun_kills(process_environment())};
  ProcessFaults faults;
  Signals::Time started = std::chrono::steady_clock::now();
};

/// Prints a warning while the run goes on. Any rank may call it, on any thread.
void say_warning(const std::string& line);
/// Prints a line below the progress line, on the thread that waits for signals.
void say(const std::string& line);

/// Standard output of a rank. A run whose output is full waits for its reader, but not with its
/// end; one whose reader is gone, or whose disk is full, trains on, since its figures are in its
/// log.
Console make_console(Console::Mode mode, TrainProcess& process);

/// The line for people on a failure that all ranks know of, and behind it, if values are lost, one
/// on what to do next.
std::string told_of(const AgreedError& error, const RunProgress& progress);

/// The last words of a process that `signal` ends.
std::string ended_by(int signal, Start::By start, const RunProgress& progress);

}  // namespace zero
