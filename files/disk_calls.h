// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace zero::files {

/// The calls of a process whose time a disk decides, since the process started.
struct DiskCalls {
  std::int64_t begun = 0;
  std::int64_t ended = 0;  ///< no more than `begun`

  bool operator==(const DiskCalls&) const = default;
};

/// Those of this process, by all its threads and file systems. Any thread; no lock.
DiskCalls disk_calls() noexcept;

/// A call to the disk, from construction to destruction, by one thread: a system call, or a wait
/// for io_uring. One within another of the same thread is not counted. A transfer that no thread
/// waits for is no call. The counts tell a watchdog whether a disk holds up the process, also where
/// a thread sleeps as if it were idle: in io_uring and FUSE.
class DiskCall {
 public:
  DiskCall() noexcept;
  ~DiskCall();
  DiskCall(const DiskCall&) = delete;
  DiskCall& operator=(const DiskCall&) = delete;
};

}  // namespace zero::files
