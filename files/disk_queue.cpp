// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/disk_queue.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "files/disk_file.h"
#include "files/pwrite_queue.h"

namespace zero::files {

DiskQueue::DiskQueue(std::unique_ptr<TransferQueue> uring, int depth, TransferCounts& counts)
    : uring_(std::move(uring)), depth_(depth), counts_(counts) {}

TransferQueue::Ticket DiskQueue::write(OutputFile& file, std::int64_t offset,
                                       std::span<const std::byte> bytes) {
  TransferQueue& queue = writer(file);
  return place({&queue, queue.write(file, offset, bytes)});
}

// The kernel runs reads of one file side by side on every file system.
TransferQueue::Ticket DiskQueue::read(InputFile& file, std::int64_t offset,
                                      std::span<std::byte> out) {
  return place({uring_.get(), uring_->read(file, offset, out)});
}

void DiskQueue::wait(Ticket ticket) {
  const auto place = places_.extract(ticket);
  ZERO_CHECK(!place.empty(), "files: no transfer has ticket {}; the last is {}", ticket, last_);
  place.mapped().queue->wait(place.mapped().ticket);
}

TransferQueue::Ticket DiskQueue::place(const QueueSlot& place) {
  places_.emplace(++last_, place);
  return last_;
}

TransferQueue& DiskQueue::writer(OutputFile& file) {
  const PosixFile& posix = posix_file(file);
  if (posix.uring_writes_in_parallel()) return *uring_;
  if (!threads_) {
    threads_ = std::make_unique<PwriteQueue>(depth_);
    counts_.use(fmt::format("pwrite: io_uring would write one block at a time to this file system "
                            "(type {:#x})",
                            posix.file_system()),
                "");
  }
  return *threads_;
}

}  // namespace zero::files
