// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace zero::files {

/// How the queues of a disk transfer, and what they have written since the process started: what
/// FileSystem::how() tells. Thread-safe.
class TransferCounts {
 public:
  /// Transfers go this way from here on: "io_uring", or "pwrite: " and why. `note`: on the memory
  /// of the queue; may be empty.
  void use(std::string way, std::string note);
  void wrote_direct(std::int64_t bytes);
  void wrote_cached(std::int64_t bytes);
  /// A file takes no direct transfers; `reason` is the system's. Once a file.
  void refused_direct(std::string reason);

  std::string text() const;

 private:
  mutable std::mutex mutex_;
  std::string way_ = "no queue";
  std::string note_;
  std::int64_t direct_ = 0;  // bytes
  std::int64_t cached_ = 0;
  std::int64_t refused_ = 0;  // files
  std::string reason_;        // of the newest refusal
};

}  // namespace zero::files
