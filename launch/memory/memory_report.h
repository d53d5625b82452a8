// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "launch/memory/memory_series.h"

/// What zero_memory tells of series, as whole lines for people. Texts of a file (labels, units)
/// come as they are: print them through printable_text().
namespace zero::memory_report {

/// Bytes by class at the end and at the peak, the peak's step and phase, and its `most` largest
/// labels (a trace), and the largest sum of each phase.
std::string summary(const MemorySeries& series, std::int64_t most);

/// Classes of two series at their peaks and ends, and the `most` labels whose bytes differ most, at
/// the peaks and at the ends.
std::string difference(const MemorySeries& a, const MemorySeries& b, std::int64_t most);

struct Leaks {
  bool found = false;
  std::string text;
};
/// The labels that kept growing from step to step by at least `threshold` bytes, by
/// MemoryMonitor::leaks_of(): class, label, unit, bytes, bytes a step.
Leaks leaks(const MemorySeries& series, std::int64_t threshold);

/// "memory of rank 0 of 8, run.memory: 12.3 s, steps 1 to 20; cut off".
std::string title(const MemorySeries& series);

}  // namespace zero::memory_report
