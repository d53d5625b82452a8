// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "launch/memory/memory_trace_file.h"
#include "model/unit_listener.h"

namespace zero {

/// Records each charge and release of a rank's memory, with the step and the phase at that time, in
/// a MemoryTraceFile: an event is in the file when record() returns, a phase a tenth of a second
/// later at most if anything follows. A file that cannot be written is told of on standard error,
/// once; the run goes on.
///
/// As a listener of units it hears of forward and backward, not of operations. Any thread may call
/// record(), the rank's host thread all else.
class MemoryTrace final : public UnitListener {
 public:
  /// Creates the file, as MemoryTraceFile does. Throws zero::Error if that fails.
  explicit MemoryTrace(MemoryTraceOptions options);
  MemoryTrace(const MemoryTrace&) = delete;
  MemoryTrace& operator=(const MemoryTrace&) = delete;
  /// Writes the line that says that the trace is whole.
  ~MemoryTrace() override;

  /// MemoryTraceFile::aside()
  const std::string& aside() const { return file_.aside(); }
  /// What is charged already, and the device's bytes (0: unknown). Call before record().
  void start(const MemorySnapshot& charged, std::int64_t device_bytes);
  /// Engine::unit_names().
  void units(const std::vector<std::string>& names);
  /// From here on events are of this step (0: before the first) and phase.
  void at(std::int64_t step, std::string_view phase);
  void record(const MemoryEvent& event) noexcept;
  /// Returns once the system has all that was recorded.
  void flush() noexcept;

  void unit(std::string_view name, Phase phase) override;
  bool hears_operations() const override { return false; }
  void begin(const OpCost& /*cost*/) override {}
  void end() noexcept override {}

 private:
  /// Does `work` with the file; after the first failure nothing.
  template <typename Work>
  void with_file(const Work& work) noexcept;

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::mutex mutex_;  // of all below; events come from any thread
  MemoryTraceFile file_;
  MemoryPlace place_{.phase = "setup"};
  bool failed_ = false;
};

}  // namespace zero
