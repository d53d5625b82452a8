// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdint>

namespace zero::files {

/// The calls of a process whose time a disk decides, the reader of its output, the writer of its
/// input, or a library that gives no sign of life, since the process started.
struct DiskCalls {
  std::int64_t begun = 0;
  std::int64_t ended = 0;  ///< no more than `begun`

  bool operator==(const DiskCalls&) const = default;
};

/// Those of this process, by all its threads and file systems. Any thread; no lock.
DiskCalls disk_calls() noexcept;

/// A call to the disk, from construction to destruction, by one thread: a system call, several in a
/// row, or a wait for io_uring. One within another of the same thread is not counted. A transfer
/// that no thread waits for is no call. The counts tell a watchdog whether a disk holds up the
/// process, also where a thread sleeps as if it were idle: in io_uring and FUSE. What
/// files/file_system.h offers counts itself; others make their system calls in uninterrupted(), and
/// stand a guard around streams of the standard library.
class DiskCall {
 public:
  DiskCall() noexcept;
  ~DiskCall();
  DiskCall(const DiskCall&) = delete;
  DiskCall& operator=(const DiskCall&) = delete;
};

/// While it lives, calls of the thread that made it are not counted: for a thread on which nothing
/// else of the process waits, so that its disk holds nobody up. What the thread has begun to count
/// before, and other threads, are counted as ever.
class UncountedDiskCalls {
 public:
  UncountedDiskCalls() noexcept;
  ~UncountedDiskCalls();
  UncountedDiskCalls(const UncountedDiskCalls&) = delete;
  UncountedDiskCalls& operator=(const UncountedDiskCalls&) = delete;
};

/// Repeats a system call while signals interrupt it, which network file systems and FUSE allow;
/// returns its result. One call to the disk.
template <typename Call>
auto uninterrupted(const Call& call) {
  const DiskCall counted;
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace zero::files
