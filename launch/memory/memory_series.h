// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device/memory_monitor.h"
#include "launch/memory/memory_trace_file.h"

namespace zero {

/// A rank's memory over time, as a trace (run.memory_trace) has it, every charge and release, or a
/// log (run.log): a place a step, with bytes by class.
struct MemorySeries {
  /// A charge or release; what is charged at the begin is a change too.
  struct Change {
    double seconds = 0;
    std::int32_t place = 0;  ///< index into `places`
    std::int32_t label = 0;  ///< index into `labels`
    std::int64_t bytes = 0;
  };

  std::string path{};
  int rank = 0;
  int ranks = 1;
  std::int64_t device_bytes = 0;      ///< 0: not known
  std::vector<MemoryLabel> labels{};  ///< of a log without names
  std::vector<MemoryPlace> places{};  ///< in order; at least one
  std::vector<Change> changes{};
  std::vector<std::int64_t> peaks{};  ///< of a log: the largest sum within each place
  std::vector<std::string> units{};
  bool whole = false;  ///< has its last line: the run has not been cut off, and is over

  bool of_log() const { return !peaks.empty(); }
  /// Of the last change or place.
  double end_seconds() const;
};

/// Reads a trace, with its earlier part if there is one, or a log: told apart by the first line.
/// Throws zero::Error, naming file, line and what was found and expected, if a line is cut, is no
/// JSON, lacks a key, or if its total is not that of the lines before.
MemorySeries read_memory(const std::string& path);

/// The bytes of a series at one time.
struct MemoryState {
  std::vector<std::int64_t> labels{};  ///< by index into MemorySeries::labels
  BytesByClass classes{};
  std::int64_t total = 0;

  void add(const MemorySeries& series, const MemorySeries::Change& change);
  /// Those that hold bytes.
  BytesByLabel by_label(const MemorySeries& series) const;
};

/// The largest sum of a series, and where.
struct MemoryPeak {
  MemoryState state{};
  std::int64_t total = 0;  ///< of a log, whose peaks lie between its lines, above `state.total`
  double seconds = 0;
  std::int32_t place = 0;
};
MemoryPeak peak_of(const MemorySeries& series);
/// The state at the run's end: where the phase "end" begins, behind which a run gives its memory
/// back, or behind the last change if it was cut off.
MemoryState end_of(const MemorySeries& series);

/// The bytes at the end of each step, up to the run's end, of labels that change behind the first:
/// MemoryMonitor's moments, "step 12", for its rules.
std::vector<MemoryMoment> moments_of(const MemorySeries& series);

}  // namespace zero
