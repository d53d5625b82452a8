// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "files/file_system.h"
#include "files/posix_file.h"

namespace zero::files {

/// Transfers by pread and pwrite on threads of its own, for systems without io_uring and for file
/// systems where io_uring runs one transfer of a file at a time.
class PwriteQueue final : public TransferQueue {
 public:
  /// Starts as many threads as the system allows, up to those of `options`; without any, write()
  /// and read() transfer.
  explicit PwriteQueue(const QueueOptions& options);
  ~PwriteQueue() override;

  /// Why there are fewer threads than asked for, and how many; empty if there are all.
  const std::string& note() const { return note_; }

  Ticket write(OutputFile& file, std::int64_t offset, std::span<const std::byte> bytes) override;
  Ticket read(InputFile& file, std::int64_t offset, std::span<std::byte> out) override;
  void wait(Ticket ticket) override;

 private:
  Ticket submit(Transfer transfer);
  void work();

  std::size_t depth_;
  std::string note_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable ended_;
  Ticket last_ = 0;
  std::deque<std::pair<Ticket, Transfer>> waiting_;
  std::set<Ticket> in_flight_;                        // those waiting and those that run
  std::unordered_map<Ticket, std::string> failures_;  // not yet waited for
  bool ending_ = false;
  std::vector<std::jthread> threads_;  // last: they use all other members
};

}  // namespace zero::files
