// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "files/forwarding_file_system.h"

namespace zero {

/// What a fault may do to its process; tests give their own. Called on the rank's host thread.
struct FaultActions {
  using Clock = std::chrono::steady_clock;

  std::function<void(int)> signal;    ///< to this process; SIGSEGV to the calling thread
  std::function<void()> loop;         ///< uses a core, and does not return
  std::function<int()> cut;           ///< shuts all TCP connections down; returns how many
  std::function<void()> fill_memory;  ///< takes memory until the process is killed
  std::function<void(double)> sleep;  ///< seconds
  std::function<Clock::time_point()> now;
  std::function<void(const std::string&)> say;  ///< a line for people
};

/// The actions of a run; lines go to standard error.
FaultActions process_actions();

/// Shuts down, in both directions, every connected TCP socket that this process has, its peers on
/// this host too. Returns how many.
int cut_tcp_connections();

/// Whether a control group limits this process's memory to less than the machine has: then the
/// system kills a process of the group for taking too much, and no other one. Tests set `root`, a
/// prefix of /proc and /sys.
bool memory_is_limited(const std::string& root = "");

/// A file system that passes calls on to another, and can be made to look full: then no file or
/// folder can be made, as on disks that reserve a file's space when the file is made. Files that
/// are there are read and written as before. Thread-safe.
class FullDisk final : public files::ForwardingFileSystem {
 public:
  /// `inner` must outlive this.
  explicit FullDisk(files::FileSystem& inner) : ForwardingFileSystem(inner) {}

  using Clock = std::chrono::steady_clock;
  /// The disk is full until then; time_point::max(): for good.
  void fill_until(Clock::time_point end) { full_until_ = end.time_since_epoch().count(); }

  std::unique_ptr<files::OutputFile> create(const std::string& path, std::int64_t bytes) override;
  files::ScratchFile create_scratch(const std::string& folder, std::int64_t bytes) override;
  void make_folder(const std::string& path) override;
  std::int64_t free_bytes(const std::string& folder) override;

 private:
  bool is_full() const { return Clock::now().time_since_epoch().count() < full_until_; }
  void need_room(const std::string& path, const char* what) const;

  std::atomic<Clock::rep> full_until_{Clock::time_point::min().time_since_epoch().count()};
};

}  // namespace zero
