// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_map>

#include "files/file_system.h"
#include "files/transfer_counts.h"

namespace zero::files {

/// Transfers by io_uring, but for writes of file systems for whose files the kernel would run them
/// one after another (network file systems, overlays): threads make those, several at a time.
class DiskQueue final : public TransferQueue {
 public:
  /// `uring`: a queue of `depth`. `counts` hears of threads when they are first used.
  DiskQueue(std::unique_ptr<TransferQueue> uring, int depth, TransferCounts& counts);

  Ticket write(OutputFile& file, std::int64_t offset, std::span<const std::byte> bytes) override;
  Ticket read(InputFile& file, std::int64_t offset, std::span<std::byte> out) override;
  void wait(Ticket ticket) override;

 private:
  struct QueueSlot {
    TransferQueue* queue;
    Ticket ticket;  // of that queue
  };
  Ticket place(const QueueSlot& place);
  /// The queue for writes of a file.
  TransferQueue& writer(OutputFile& file);

  std::unique_ptr<TransferQueue> uring_;
  std::unique_ptr<TransferQueue> threads_;  // null until a file needs them
  int depth_;
  TransferCounts& counts_;
  Ticket last_ = 0;
  std::unordered_map<Ticket, QueueSlot> places_;  // not yet waited for
};

}  // namespace zero::files
