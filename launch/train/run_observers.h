// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "launch/memory/memory_trace.h"
#include "launch/telemetry/instruments.h"

namespace zero {

struct TrainConfig;

/// What observes a rank's run, as its configuration asks for: instruments (run.profile, run.trace)
/// and a trace of memory (run.memory_trace). Must outlive the run's device and trainer.
class RunObservers {
 public:
  /// Opens the trace's file. Throws zero::Error if it cannot be written.
  RunObservers(const TrainConfig& config, int rank);

  /// Null: none.
  Instruments* instruments() const { return instruments_.get(); }
  MemoryTrace* memory_trace() const { return memory_trace_.get(); }
  /// Keeps what is recorded, for a process that ends without destructors.
  void flush() noexcept {
    if (memory_trace_) memory_trace_->flush();
  }

 private:
  std::unique_ptr<Instruments> instruments_;
  std::unique_ptr<MemoryTrace> memory_trace_;
};

}  // namespace zero
