// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace zero {

class Console;

/// Follows a run's log while the run writes it: the lines of memory of its steps, as text. Used by
/// one thread.
class LogWatch {
 public:
  /// For which a log may be gone: a run that begins anew renames it first.
  static constexpr std::chrono::milliseconds kPatience{5000};

  /// Throws zero::Error if the log cannot be read.
  explicit LogWatch(std::string path, std::chrono::milliseconds patience = kPatience);

  struct News {
    std::vector<std::string> lines{};  ///< a step each
    bool over = false;                 ///< the run has ended
  };
  /// What was written since the last call. A line that is not whole waits; a log that begins anew,
  /// or another file under its name, is read from its begin. Throws zero::Error, naming file and
  /// line, if one is no JSON or has no memory, or if the log is gone for longer than `patience`.
  News next();

 private:
  void follow();
  void read(const std::string& line, News& news);

  std::string path_;
  std::chrono::milliseconds patience_;
  Descriptor file_{-1};  // stays open, so that no other file gets its number
  std::chrono::steady_clock::time_point seen_ = std::chrono::steady_clock::now();
  std::int64_t at_ = 0;      // bytes read, whole lines
  std::int64_t number_ = 0;  // of the last line
  std::int64_t steps_ = 0;
  std::optional<std::int64_t> steady_{};  // bytes behind the step from which on they are steady
};

/// Prints a log's steps until its run ends, or `goes_on` is false, which is asked five times a
/// second: one line that is refreshed on a terminal, else a line a step.
void watch_log(const std::string& path, Console& console, const std::function<bool()>& goes_on);

}  // namespace zero
