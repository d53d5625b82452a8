// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "launch/process/environment.h"

namespace zero {

class Console;
struct TrainConfig;

/// A point of a run at which its log goes on, and that by which a log is known to be the run's: the
/// field "run" of its first line, and two losses, which are nothing if they were not finite, or
/// the log has no such step.
struct LogPoint {
  std::string run{};
  std::int64_t step = 0;
  std::optional<double> first_loss{};  ///< of step 1
  std::optional<double> loss{};        ///< of `step`
};

/// A file of JSON lines. Each line is written whole and immediately: an interrupted run leaves only
/// whole lines, and perhaps the beginning of one.
class RunLog {
 public:
  /// For which a start waits for an earlier run that is ending.
  static constexpr std::chrono::milliseconds kPatience{2000};

  /// Opens the file, whose lines stay until the first of the calls below. Throws zero::Error if the
  /// file cannot be written, is a pipe without a reader, or for longer than `patience` another run
  /// has it open as its log, also under another name (a hard link).
  explicit RunLog(const std::string& path, std::chrono::milliseconds patience = kPatience);

  /// Begins a log without lines. A file that has some keeps them under another name:
  /// files::behind_links(path).1, or the next number that is free. Returns that name; empty: there
  /// was no line.
  std::string start_over();

  /// The result of go_on().
  struct Cut {
    std::int64_t lines = 0;      ///< cut off
    std::int64_t last_step = 0;  ///< of the lines that stay; 0: no line stays
    nlohmann::json line{};       ///< of last_step
    std::string aside{};         ///< of a log that starts over: where its lines are kept
  };
  /// Cuts off all lines behind that of step `at.step`: those of steps that are done again, and a
  /// line that is not whole. Lines of the steps before stay as they are, also if the process ends
  /// meanwhile. A log whose first line is no JSON, which a crash can leave, starts over. Throws
  /// zero::Error, and changes nothing, if the file is the log of another run. A path that is no
  /// regular file, or the file of standard output or error, has no lines.
  Cut go_on(const LogPoint& at);

  /// Fields keep their order.
  void write(const nlohmann::ordered_json& line);
  /// Blocks until all lines are on the disk, if the path is a regular file. Throws zero::Error if
  /// they may not be. Any thread.
  void sync();
  const std::string& path() const { return path_; }

 private:
  bool regular() const;
  /// Where the file system has no locks, as a second run's is taken for none.
  void lock(std::chrono::milliseconds patience) const;

  std::string path_;
  Descriptor file_;
};

/// The log of a training run: the first rank's file, which can fail without ending a step. Other
/// ranks have none, and their calls do nothing. No call is collective.
class TrainingLog {
 public:
  /// `log`: null if this rank has none. All must outlive the object.
  TrainingLog(const TrainConfig& config, RunLog* log, Console& console)
      : config_(config), log_(log), console_(console) {}

  /// Whether this rank has a log, which has not failed.
  bool open() const { return log_ != nullptr; }
  bool failed() const { return failed_; }
  /// The file, to sync() it from another thread; null unless open().
  RunLog* file() const { return log_; }
  /// Moves a log that is there away.
  void start_over();
  /// Cuts off the lines behind the checkpoint's step, and tells people of what is cut or missing.
  void go_on(const LogPoint& at);
  /// If the line cannot be written, the log has failed: a run that saves saves after its next step
  /// and ends; another goes on without a log.
  void write(const nlohmann::ordered_json& line);

 private:
  const TrainConfig& config_;
  RunLog* log_;
  Console& console_;
  bool failed_ = false;
};

/// Why this start is one more of the same run, as one line: "restart 2: status 137 after 41 s",
/// with what launch/retry.sh says in ZERO_RESTART, or else that torchrun or Slurm counts it as one,
/// which tell no cause. Empty for a first start. `folder`: the run's checkpoint folder, which is
/// there; empty: none. A ZERO_RESTART of another folder is of another job, which handed it down.
std::string restart_text(const Environment& environment, const std::string& folder);

}  // namespace zero
