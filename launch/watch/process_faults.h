// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "launch/watch/run_faults.h"

namespace zero {

/// The process of a rank, or of several as threads, in the face of faults: how their watchdogs tell
/// people and end it, and how it answers a signal that ends it. Any thread may use it.
class ProcessFaults {
 public:
  /// `program`: the name under which it tells; `launched`: the rank, or the first one, of this
  /// process. `next_step` is asked for the line behind a fault: what to do then; empty: none. Any
  /// thread asks, and no disk or other rank may keep it from answering.
  ProcessFaults(std::string program, int launched, std::function<std::string()> next_step = {})
      : program_(std::move(program)), launched_(launched), next_step_(std::move(next_step)) {}

  /// Has an entry in a list of the process, while this object lives.
  template <typename T>
  class Listed {
   public:
    Listed(ProcessFaults& process, std::vector<T>& list, T entry)
        : mutex_(process.mutex_), list_(list), entry_(std::move(entry)) {
      const std::scoped_lock lock(mutex_);
      list_.push_back(entry_);
    }
    ~Listed() {
      const std::scoped_lock lock(mutex_);
      list_.erase(std::ranges::find(list_, entry_));
    }
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

   private:
    std::mutex& mutex_;
    std::vector<T>& list_;
    T entry_;
  };

  /// A rank of this process. `process` and `rank` must outlive it.
  struct Joined : Listed<RunFaults*> {
    Joined(ProcessFaults& process, RunFaults& rank) : Listed(process, process.ranks_, &rank) {}
  };

  /// Before a rank of this process makes its flight file in a run's folder in `folder`, until it
  /// joins: a signal that ends the process meanwhile removes the file, since nothing has begun that
  /// it could tell of. An empty folder: the file is in memory alone.
  struct Starting : Listed<std::pair<std::string, int>> {
    Starting(ProcessFaults& process, std::string folder, int rank)
        : Listed(process, process.starting_, {std::move(folder), rank}) {}
  };

  /// For the watchdogs of this process, which tell on standard error and end it with the status of
  /// a fault, once all ranks have copied their flight files.
  WatchdogOptions watchdog(double hang_seconds);

  /// A rank fails by an error that it is about to tell of: RunFaults::failing(); `rank` is null if
  /// nothing notices its faults yet. The process is about to end: all its ranks copy their flight
  /// files. Returns the message that the rank is to tell.
  std::string failing(RunFaults* rank, const std::exception& error);
  /// A failure was told of; a signal that follows from it is not told.
  void told() { told_ = true; }

  // For the thread that answers signals.
  /// Whether any rank has joined, or starts.
  bool any() const;
  /// Whether a watchdog is about to end the process: launchers end the others of a rank that died.
  bool takes_over() const;
  /// What people are to know of a job that they order to end: RunFaults::waits() of a rank of the
  /// job's first process; empty in others.
  std::string waits() const;
  /// The process is about to end by `signal`: all its ranks do so (RunFaults::ended_by()), and copy
  /// their flight files side by side, and those of ranks that are starting go. Before the copies,
  /// for which a launcher may leave no time, the job's first process calls `tell`, unless a failure
  /// was told of; the others give it time.
  void end_by(int signal, const std::function<void()>& tell);

 private:
  /// The next step as a line of its own, "\n..."; empty: none.
  std::string behind_a_fault() const;
  /// RunFaults::keep_files() of all ranks.
  void keep_files() const;
  /// Returns once all have done it.
  void side_by_side(const std::function<void(RunFaults&)>& act) const;

  const std::string program_;
  const int launched_;
  const std::function<std::string()> next_step_;
  std::atomic<bool> told_{false};
  std::atomic<bool> ends_{false};  // by a signal
  mutable std::mutex mutex_;
  std::vector<RunFaults*> ranks_{};
  std::vector<std::pair<std::string, int>> starting_{};  // folders of flight files, and ranks
};

}  // namespace zero
