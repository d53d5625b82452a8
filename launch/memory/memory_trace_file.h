// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "device/memory_ledger.h"

namespace zero {

/// The file of a rank: run.memory_trace itself, or with ".rankN" for the ranks behind the first.
std::string memory_trace_file(const std::string& path, int rank);
/// Where the older half of a trace lies that was too long for one file: `path` with ".before".
std::string earlier_part(const std::string& path);

/// Throws zero::Error, naming run.memory_trace and the file, if `path` or its earlier part is there
/// and is anything but an empty file or a trace: a device, a pipe, a file of the user's. Opens
/// regular files alone, and changes nothing.
void check_trace_target(const std::string& path);

struct MemoryTraceOptions {
  std::string path;                                  ///< as memory_trace_file() gives it
  std::int64_t most_bytes = std::int64_t{64} << 20;  ///< of both files together
  int rank = 0;
  int ranks = 1;
};

/// A line of a trace: a charge or release at a step and phase, or, without bytes, a step and phase
/// that begin.
struct MemoryRecord {
  double seconds = 0;  ///< since the trace's begin
  std::int64_t step = 0;
  std::string phase{};
  MemoryClass memory_class = MemoryClass::other;
  std::string label{};
  std::int64_t bytes = 0;  ///< negative: released
  std::int64_t total = 0;  ///< of all classes, behind it
};

/// Bytes by class and label.
using BytesByLabel = std::map<std::pair<MemoryClass, std::string>, std::int64_t, std::less<>>;

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
  void write(const MemoryRecord& record);
  /// Events that are not in the file: their number and, by label, the sums of their bytes. `last`:
  /// the step and phase of the last one.
  void missed(std::int64_t count, const BytesByLabel& sums, const MemoryRecord& last);
  /// The trace is whole.
  void end(double seconds);
  /// Hands all lines to the system.
  void flush();

  const std::string& path() const { return options_.path; }
  /// Where an earlier trace is kept: path().1, or the next number that is free. Empty: there was
  /// none.
  const std::string& aside() const { return aside_; }

 private:
  void open();
  void head();
  void state();
  void line(const std::string& text);
  void apply(MemoryClass memory_class, const std::string& label, std::int64_t bytes);

  MemoryTraceOptions options_;
  std::string aside_{};
  std::int64_t run_;  // nanoseconds since 1970, which tell traces apart
  Descriptor file_{-1};
  std::string text_{};           // lines that are not yet in the file
  std::int64_t file_bytes_ = 0;  // with those
  int part_ = 0;
  BytesByLabel charged_{};
  std::int64_t device_bytes_ = 0;
  std::vector<std::string> units_{};
  MemoryRecord last_{.phase = "setup"};  // when and where the last line was
};

}  // namespace zero
