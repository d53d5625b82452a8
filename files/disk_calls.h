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

/// One of them, made by one thread from construction to destruction: a system call, or a wait for
/// io_uring. Within another of its thread it is a part of that one. A transfer that the kernel has,
/// and that no thread waits for, is none. Who watches the process knows by these whether a disk
/// holds it up, also where a thread sleeps as if idle: io_uring and FUSE.
class DiskCall {
 public:
  DiskCall() noexcept;
  ~DiskCall();
  DiskCall(const DiskCall&) = delete;
  DiskCall& operator=(const DiskCall&) = delete;
};

}  // namespace zero::files
