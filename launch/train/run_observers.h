// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace zero {

class Instruments;
class MemoryTraceFile;
class RunLock;
struct TrainConfig;

/// What observes a rank's run, as its configuration asks for: instruments (run.profile, run.trace)
/// and a trace of memory (run.memory_trace). Must outlive the run's device and trainer.
class RunObservers {
 public:
  /// Locks the trace's file and opens it. Throws zero::Error if it cannot be written, is another
  /// run's, or is no trace. An earlier trace is renamed.
  RunObservers(const TrainConfig& config, int rank);
  ~RunObservers();

  /// Null: none.
  Instruments* instruments() const { return instruments_.get(); }
  MemoryTraceFile* memory_trace() const { return memory_trace_.get(); }
  /// What people should know, a line each: where an earlier trace is kept, a lock that is not to be
  /// had.
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::unique_ptr<Instruments> instruments_;
  std::unique_ptr<RunLock> trace_lock_;
  std::unique_ptr<MemoryTraceFile> memory_trace_;  // ends before its lock
  std::vector<std::string> lines_{};
};

}  // namespace zero
