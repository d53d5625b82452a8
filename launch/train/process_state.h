// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "launch/process/signals.h"
#include "launch/rendezvous/start.h"
#include "launch/telemetry/output.h"
#include "launch/train/run_faults.h"
#include "launch/train/run_progress.h"

namespace zero {

/// What notices the faults of this process's ranks, for the thread that answers signals. Any thread
/// may use it.
class ProcessFaults {
 public:
  /// `faults` must outlive this object, or be left before.
  void join(RunFaults& faults);
  void leave(const RunFaults& faults);
  /// Whether a watchdog is about to end the process.
  bool takes_over() const;
  void ended_by(int signal, RunFaults::Told told);

 private:
  mutable std::mutex mutex_;
  std::vector<RunFaults*> all_{};
};

/// The state of the process that its signal handling reads.
struct ProcessState {
  std::atomic<bool> reported{false};  ///< a failure was reported
  std::atomic<bool> ends{false};      ///< a signal is about to end the process
  std::atomic<int> output_error{0};   ///< for which standard output lacks a text; 0: none
  RunProgress progress{};
  Signals signals{};
  ProcessFaults faults{};
  Signals::Time started = std::chrono::steady_clock::now();
};

/// Prints a warning while the run goes on. Any rank may call it, on any thread.
void say_warning(const std::string& line);
/// Prints a line below the progress line, on the thread that waits for signals.
void say(const std::string& line);

/// How the watchdogs of this process tell of a fault and end it: on standard error, with the status
/// of a fault.
WatchdogOptions watchdog_options(ProcessState& state);

/// Standard output of a rank. A run whose output is full waits for its reader, but not with its
/// end; one whose reader is gone, or whose disk is full, trains on, since its figures are in its
/// log.
Console make_console(Console::Mode mode, ProcessState& state);

/// The last words of a process that `signal` ends.
std::string ended_by(int signal, Start::By start, const RunProgress& progress);

}  // namespace zero
