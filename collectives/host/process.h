// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/descriptor.h"

namespace zero::host {

/// A process of this host. Its start time tells it from a later process with the same number.
struct Process {
  int id = 0;
  std::uint64_t start = 0;  ///< clock ticks after boot

  bool operator==(const Process&) const = default;
};

/// Throws zero::Error with the system's reason.
Process this_process();
/// The process that has number `id` now. Throws zero::Error with the system's reason.
Process process(int id);
/// Whether the process has ended, waits to be reaped, or its number belongs to another. False for a
/// process that exists but cannot be examined for lack of descriptors or memory.
bool ended(const Process& process);
/// The state of the process in words: "process 4711 is stopped".
std::string described(const Process& process);

/// What a thread has done since it began.
struct Thread {
  int id = 0;                 ///< 0: none
  bool runnable = false;      ///< it runs, or waits for a core
  std::int64_t cpu = 0;       ///< nanoseconds that it has run, to a hundredth of a second
  std::int64_t kernel = 0;    ///< of those in the kernel: scaled by samples of its whole life
  std::int64_t faults = 0;    ///< pages that it has touched and that the kernel had to supply
  std::int64_t switches = 0;  ///< how often it went to sleep of its own; 0 where none are counted
};

/// Which thread of a process runs most, look by look. Any thread may use it.
class BusiestThread {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The index of the thread that runs now and has run more than half of what all have since the
  /// choice before; nothing if there is none. All of them must have run for a while by then, or the
  /// choice before holds. At first, and if a look is a second behind the last, of those that run
  /// now the one that has run most.
  std::optional<std::size_t> of(std::span<const Thread> threads, Time now);

 private:
  std::mutex mutex_;
  std::map<int, std::int64_t> before_{};  // what each had run at the choice before
  int chosen_ = 0;                        // 0: none
  Time looked_{};
};

/// What the threads of a process do at one moment; for this process without the calling thread.
struct Activity {
  bool dumps_core = false;    ///< it has crashed, and ends once the system has its core dump
  bool stopped = false;       ///< by a signal or a debugger, all of them
  bool runnable = false;      ///< one at least runs, or waits for a core
  bool in_device = false;     ///< one at least waits for a disk or a device, and hears of no signal
  std::int64_t cpu = 0;       ///< nanoseconds that they have run, to a hundredth of a second
  std::int64_t resident = 0;  ///< bytes that the process holds, without pages of files
  Thread busiest{};           ///< by the caller's BusiestThread; none without one
};
/// Nothing if the process has ended or cannot be examined. Reads some files of /proc. Tests set
/// `root`, a prefix of that.
std::optional<Activity> activity(const Process& process, BusiestThread* busiest = nullptr,
                                 const std::string& root = "");

/// Names this process's PID namespace.
std::string process_namespace();
/// Names this process's user namespace. A process of another user namespace lets no process here
/// open its files, not even one of the same user.
std::string user_namespace();
/// Whether this process is in the initial user namespace, that is, in no container started by an
/// ordinary user.
bool in_first_user_namespace();

/// The start, in clock ticks after boot, of the process whose /proc/ID is `directory`; 0 if
/// unreadable.
std::uint64_t start_of(const Descriptor& directory);

/// Checks whether one process has ended, by a pidfd that it keeps open, so that checking needs no
/// further descriptor. Without a pidfd (Linux before 5.3, no descriptor left), works like ended()
/// above.
class Watch {
 public:
  /// The caller has compared the start of `process`.
  explicit Watch(const Process& process);

  const Process& process() const { return process_; }
  bool ended() const;
  /// Ends the process (SIGKILL) if it still runs: by the pidfd, so that no later process with its
  /// number is hit. Without a pidfd, one that gets the number at that very moment would be.
  void kill() const;
  /// Readable once the process has ended; negative: there is none. Owned by this object.
  int descriptor() const { return handle_.get(); }

 private:
  Process process_;
  Descriptor handle_;  // of pidfd_open; negative: none
};

}  // namespace zero::host
