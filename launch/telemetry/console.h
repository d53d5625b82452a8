// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace zero {

/// A program's output to its user: whole lines, and one line of progress, refreshed in place on
/// a terminal. Does not own the stream.
class Console {
 public:
  enum class Mode {
    terminal,  ///< progress is refreshed in place
    lines,     ///< progress is whole lines
    silent,    ///< nothing is written: ranks other than the first
  };
  Console(std::FILE* stream, Mode mode) : stream_(stream), mode_(mode) {}

  Mode mode() const { return mode_; }
  /// A line of its own; ends a line of progress first.
  void line(const std::string& text);
  /// Replaces the line of progress (terminal), at most ten times a second; nothing otherwise.
  void refresh(const std::string& text);
  /// Ends the line of progress, so that other output starts on a fresh line.
  void end_progress();

 private:
  std::FILE* stream_;
  Mode mode_;
  bool open_ = false;
  std::chrono::steady_clock::time_point last_{};
};

/// Whether a user sees standard output of this process at once: on a terminal, also
/// through mpirun, which puts a terminal of its own between.
bool on_terminal();

/// "42 s", "3 min 07 s", "2 h 05 min".
std::string duration_text(double seconds);
/// "512 B", "1.50 MiB", "12.3 GiB".
std::string bytes_text(double bytes);
/// "950", "12.3k", "4.56M".
std::string count_text(double count);

}  // namespace zero
