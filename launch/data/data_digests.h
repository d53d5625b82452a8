// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launch/data/token_file.h"

namespace zero {

/// The digests of token files: a thread of its own, of the lowest priority, reads and hashes every
/// byte of those that have none beside them. One thread may use an object.
class DataDigests {
 public:
  /// The files must outlive the object. Leaves out those that `read_elsewhere` marks, one mark a
  /// file, or none: their texts stay empty unless their digest is beside them.
  explicit DataDigests(std::vector<const TokenFile*> files, std::vector<bool> read_elsewhere = {});
  DataDigests(const DataDigests&) = delete;
  DataDigests& operator=(const DataDigests&) = delete;
  ~DataDigests();

  /// Whether the digests of all files are known, or one cannot be made. Does not wait.
  bool complete() const { return complete_; }
  /// Waits until complete(), at most `seconds`.
  void wait(double seconds) const;
  /// The digests' texts once complete(); throws what the thread has met, as a file that was cut.
  std::vector<std::string> texts() const;
  /// The same at any time, empty for files whose digest is not beside them.
  std::vector<std::string> known() const;
  /// Bytes of the files that are read here.
  std::int64_t bytes_to_read() const;

 private:
  bool is_read(std::size_t file) const;
  void read_all();

  std::vector<const TokenFile*> files_;
  std::vector<bool> read_elsewhere_;
  std::vector<std::string> texts_;  // the thread's until complete_
  std::exception_ptr failure_;      // likewise
  std::atomic<bool> complete_{false};
  std::atomic<bool> stopped_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable completed_;
  std::thread thread_;
};

}  // namespace zero
