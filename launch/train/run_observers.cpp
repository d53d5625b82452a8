// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/run_observers.h"

#include "launch/config/train_config.h"

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
  memory_trace_ = std::make_unique<MemoryTrace>(
      MemoryTraceOptions{.path = memory_trace_file(run.memory_trace, rank),
                         .most_bytes = run.memory_trace_bytes,
                         .rank = rank,
                         .ranks = config.world});
}

}  // namespace zero
