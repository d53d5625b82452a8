// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"
#include "device/memory_ledger.h"

namespace zero {

/// The file of a rank: run.memory_trace itself, or with ".rankN" for the ranks behind the first.
std::string memory_trace_file(const std::string& path, int rank);
/// Where the older half of a trace lies that was too long for one file: `path` with ".before".
std::string earlier_part(const std::string& path);

/// check_replaceable() of a trace, run.memory_trace, and its earlier part.
void check_trace_target(const std::string& path);

struct MemoryTraceOptions {
  std::string path;                                  ///< as memory_trace_file() gives it
  std::int64_t most_bytes = std::int64_t{64} << 20;  ///< of both files together
  int rank = 0;
  int ranks = 1;
};

/// A step and phase that begin, or at which memory changes.
struct MemoryPlace {
  double seconds = 0;     ///< since the trace's begin
  std::int64_t step = 0;  ///< 0: before the first
  std::string phase{};

  /// "step 3, forward", or "setup".
  std::string text() const;
};

/// The file of JSON lines that docs/memory_in_time.md describes. It is bounded: a file of half of
/// `most_bytes` becomes earlier_part(), in place of the one before, and the next begins with all
/// bytes that are charged then. Every call throws zero::Error, naming run.memory_trace, if the file
/// cannot be written. Used by one thread at a time.
class MemoryTraceFile {
 public:
  /// Creates the file, without lines. An earlier trace, with its earlier part, is renamed: aside().
  /// Throws zero::Error if check_trace_target() does, or if another run writes the file, under this
  /// name or another (a hard link).
  explicit MemoryTraceFile(MemoryTraceOptions options);

  /// The first lines: what is charged already, and the device's bytes (0: unknown).
  void begin(BytesByLabel charged, std::int64_t device_bytes);
  /// The names by which labels are told apart.
  void units(std::vector<std::string> names);
  /// A place, which flush() may leave to a later call, and an event, which it does not.
  void write(const MemoryPlace& place);
  void write(const MemoryPlace& place, const MemoryEvent& event);
  /// The trace is whole.
  void end(double seconds);
  /// Hands all lines to the system.
  void flush();

  /// Where an earlier trace is kept: its path with ".1", or the next number that is free. Empty:
  /// there was none.
  const std::string& aside() const { return aside_; }

 private:
  void open();
  void head();
  void part_if_full();
  void line(std::string_view text);

  MemoryTraceOptions options_;
  std::string aside_{};
  std::int64_t run_;  // nanoseconds since 1970, which tell traces apart
  Descriptor file_{-1};
  std::string text_{};           // lines that are not yet in the file
  std::int64_t file_bytes_ = 0;  // with those
  BytesByLabel charged_{};
  std::int64_t device_bytes_ = 0;
  std::vector<std::string> units_{};
  MemoryPlace last_{.phase = "setup"};  // of the last line
  double flushed_ = 0;                  // when lines were last handed over
};

}  // namespace zero
