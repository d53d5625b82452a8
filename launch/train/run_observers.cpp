// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_observers.h"

#include <fmt/format.h>

#include "launch/config/train_config.h"
#include "launch/memory/memory_trace_file.h"
#include "launch/telemetry/instruments.h"
#include "launch/train/run_lock.h"

namespace zero {

RunObservers::RunObservers(const TrainConfig& config, int rank) {
  const TrainConfig::Run& run = config.run;
  if (run.profile || !run.trace.empty()) {
    instruments_ =
        std::make_unique<Instruments>(InstrumentOptions{.profile = run.profile,
                                                        .trace = !run.trace.empty(),
                                                        .trace_from = run.trace_from,
                                                        .trace_steps = run.trace_steps,
                                                        .trace_events = run.trace_events});
  }
  if (run.memory_trace.empty()) return;
  const std::string path = memory_trace_file(run.memory_trace, rank);
  check_trace_target(path);  // before a lock is made beside it
  trace_lock_ = std::make_unique<RunLock>(
      RunLock::Place{.key = "run.memory_trace", .path = path, .file = lock_beside(path)});
  if (!trace_lock_->warning().empty()) lines_.push_back("warning: " + trace_lock_->warning());
  memory_trace_ = std::make_unique<MemoryTraceFile>(MemoryTraceOptions{
      .path = path, .most_bytes = run.memory_trace_bytes, .rank = rank, .ranks = config.world});
  if (memory_trace_->aside().empty()) return;
  lines_.push_back(fmt::format("{} begins anew; the trace of an earlier run is kept as {}", path,
                               memory_trace_->aside()));
}

RunObservers::~RunObservers() = default;

}  // namespace zero
