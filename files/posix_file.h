// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/descriptor.h"

namespace zero::files {

/// The system's text for an error number: "No space left on device".
std::string reason_of(int error);

/// Repeats a system call while signals interrupt it, which network file systems and FUSE allow;
/// returns its result.
template <typename Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// The transfer method of a disk's queues and the bytes that they have written since the process
/// started, for FileSystem::io_description(). Thread-safe.
class TransferCounts {
 public:
  /// Later transfers use `method`: "io_uring", or "pwrite: " and the reason. `note`: on the memory
  /// of the queue; may be empty.
  void use(std::string method, std::string note);
  void wrote_direct(std::int64_t bytes);
  void wrote_cached(std::int64_t bytes);
  /// A file takes no direct transfers; `reason` is the system's. Called once a file.
  void refused_direct(std::string reason);

  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string method_ = "no queue";
  std::string note_;
  std::int64_t direct_ = 0;  // bytes
  std::int64_t cached_ = 0;
  std::int64_t refused_ = 0;  // files
  std::string reason_;        // of the newest refusal
};

/// An open regular file with two descriptors: one whose transfers go through the page cache, and
/// one for O_DIRECT, opened at its first use. Thread-safe.
class PosixFile {
 public:
  /// `flags` of open(2): an access mode, O_CREAT, O_EXCL, O_NOFOLLOW. Throws zero::Error naming the
  /// path and the system's reason. `counts` takes the bytes that queues write, and a refusal
  /// of O_DIRECT.
  PosixFile(const std::string& path, int flags, TransferCounts& counts);
  /// A file that is open. `path` is for messages, `access` the access mode of later descriptors.
  PosixFile(std::string path, Descriptor open_file, int access, TransferCounts& counts);

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }
  TransferCounts& counts() { return *counts_; }
  /// The descriptor for O_DIRECT; -1 if the system refuses.
  int direct_descriptor();
  /// The system has refused a direct transfer: direct_descriptor() is -1 from here on.
  /// `error`: why.
  void refuse_direct(int error);

  /// The type of the file system, of statfs(2); 0 if unknown.
  std::uint64_t file_system() const { return file_system_; }
  /// Whether io_uring runs direct writes of this file side by side. Of other file systems' files,
  /// the kernel runs one write at a time.
  bool uring_writes_in_parallel() const;

  std::int64_t size() const;
  /// Gives the empty file its length and reserves the space, if the file system can. Throws, and
  /// raises no SIGXFSZ, if that is longer than this process may write.
  void reserve(std::int64_t bytes) const;
  /// Blocks until everything written is on the disk, whichever descriptor it went through.
  void sync() const;

 private:
  std::string path_;
  TransferCounts* counts_;
  int access_;
  Descriptor descriptor_;
  std::uint64_t file_system_ = 0;
  Descriptor direct_{-1};
  std::once_flag opened_direct_;
  std::atomic<bool> refused_{false};
};

}  // namespace zero::files
