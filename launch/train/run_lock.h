// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/descriptor.h"

namespace zero {

/// Keeps other processes, of this host and of hosts that share the file system, from writing what
/// this run, or another program, writes. The lock is the system's, on a file made for it: it ends
/// with the process, however that ends. The file holds the name of the process for whom it refuses.
class RunLock {
 public:
  struct Place {
    std::string key;   ///< of the configuration or the flags, for messages: "run.log", "--out"
    std::string path;  ///< that is written
    std::string file;  ///< the lock's, in a folder that exists
  };
  /// For which a start waits for an earlier process that is ending.
  static constexpr std::chrono::milliseconds kPatience{2000};

  /// Throws zero::Error naming the other process and its host if it has the lock for longer than
  /// `patience`. Where no lock can be had, warning() tells.
  explicit RunLock(Place place, std::chrono::milliseconds patience = kPatience);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  /// Gives the lock up and removes its file.
  ~RunLock();

  /// Why there is no lock, a line for people; empty: there is one.
  const std::string& warning() const { return warning_; }
  /// Throws zero::Error if the lock's file is gone or is another's, as if the folder was removed:
  /// it keeps nobody away any more. Where there is no lock, nothing is looked at. Any thread.
  void check() const;

 private:
  enum class Attempt { locked, taken, again, unavailable };
  Attempt attempt();
  bool is_file() const;

  Place place_;
  std::string warning_{};
  std::string holder_{};  // of the last attempt that found the lock taken
  Descriptor file_{-1};
};

/// The lock's file beside a file that is written: where links lead, with ".lock".
std::string lock_beside(const std::string& path);

/// The lock of a run on its folder of checkpoints; null if it has none.
std::unique_ptr<RunLock> lock_checkpoints(const std::string& folder);
/// The lock of a run on its log, beside the file. A link counts as the file behind it; of the names
/// of a file that has several, one: RunLog locks the file itself. Null if there is no log, or if it
/// is no regular file.
std::unique_ptr<RunLock> lock_log(const std::string& log);

}  // namespace zero
