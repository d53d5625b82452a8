// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace zero {

/// A program and its arguments, without a shell.
using Command = std::vector<std::string>;

/// The command as one line of a shell.
std::string shell_text(const Command& command);

/// The outcome of a program that has ended.
struct Finished {
  int status = 0;        ///< exit status as in a shell: 128 + the signal if one ended it
  std::string output{};  ///< standard output
  std::string errors{};
};

/// Runs `command` and waits. It inherits the environment but for a launcher's word to this process
/// (is_for_one_start()); so do the programs of a Job. Throws zero::Error if it cannot be started.
Finished run_command(const Command& command);

/// The program's own reason for its failure: of its errors the last line of a program of this
/// engine, else the last that names an error, else the last; without errors, of its output.
std::string reason_in(const Finished& finished);

/// Programs that run together beside this process, each in a process group of its own. They start
/// with no signal blocked or ignored. Only one job may live at a time: all descendants of this
/// process count as its own.
class Job {
 public:
  /// Starts the commands; what they print is appended to the file `output`. Throws zero::Error if a
  /// program cannot be started, after ending the others.
  Job(const std::vector<Command>& commands, const std::string& output);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  /// As end(), at once.
  ~Job();

  /// Nothing while the job runs; then the first status that is not 0, else 0. A job of which one
  /// program fails has ended a few seconds later: the others may say why. Never blocks.
  std::optional<int> status();
  /// Asks all processes of the job to end (SIGTERM), ends them after `grace` (SIGKILL), also those
  /// whose parents are gone, and waits until none is left. On other hosts that is the launcher's
  /// task.
  void end(std::chrono::milliseconds grace);

 private:
  void reap();

  struct Program {
    pid_t id = 0;
    std::optional<int> status{};
  };
  std::vector<Program> programs_;
  std::optional<std::chrono::steady_clock::time_point> failed_at_{};
};

}  // namespace zero
