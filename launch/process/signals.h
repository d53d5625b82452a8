// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "launch/process/environment.h"

namespace zero {

/// The signals that this process was sent, and what becomes of them. While ranks listen, SIGUSR1
/// asks for a checkpoint, and the first SIGTERM or SIGINT for a checkpoint and a good end; SIGTERM
/// behind it asks for the same, and SIGINT behind it ends the process at once, as SIGTERM and
/// SIGINT do while no rank listens. A SIGUSR1 that comes before waits until ranks listen. Any
/// thread may use it.
class Signals {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `launcher_kills` (mpirun_kills()) is told with the first SIGTERM that is heard.
  explicit Signals(std::string launcher_kills = {}) : launcher_kills_(std::move(launcher_kills)) {}

  struct Answer {
    bool ends_process = false;
    std::string line{};  ///< for people; empty: none
  };
  /// Called for each signal that arrives at `now`.
  Answer arrived(int signal, Time now);

  /// From here on a rank of this process asks what has arrived. Ranks that are threads of one
  /// process may all call it.
  /// Returns a line for people if SIGUSR1 has come before; else an empty one.
  std::string listen();
  /// No rank ever listens: the run saves nothing. Returns as listen().
  std::string refuse();
  /// From here on none does. Returns the signal that asks for an end, 0 for none: a rank that has
  /// not heard of it ends the process now.
  int stop_listening();

  struct Asked {
    std::int64_t saves = 0;  ///< SIGUSR1s so far
    Time last_save{};        ///< when the last one arrived
    int ending = 0;          ///< SIGTERM, SIGINT or 0
  };
  Asked asked() const;

 private:
  enum class State : std::uint8_t { starting, listening, refusing, ended };

  const std::string launcher_kills_;
  mutable std::mutex mutex_;
  State state_ = State::starting;
  Asked asked_;
  Time ending_since_{};  // when asked_.ending arrived
};

/// That Open MPI's mpirun kills its ranks soon behind the SIGTERM that it sends them; empty: it did
/// not start this process, or was told how long to wait.
std::string mpirun_kills(const Environment& environment);

/// Waits for SIGINT, SIGTERM and SIGUSR1 on a thread of its own and runs `on_signal` there;
/// SIGUSR2, with which some batch systems announce the end of a job, and SIGHUP count as SIGTERM.
/// Signals that the process ignores stay ignored. If that returns AfterSignal::end, ends the
/// process with status 128 + the signal's number, even if other threads are blocked. Construct the
/// watcher before any other thread.
class SignalWatcher {
 public:
  enum class AfterSignal { go_on, end };
  explicit SignalWatcher(std::function<AfterSignal(int)> on_signal);
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;
  ~SignalWatcher();

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

/// SIGUSR1 waits until training watches signals, also over a restart of the program: a scheduler
/// may send it at any moment, and it ends a process that does nothing about it.
void hold_save_requests();

}  // namespace zero
