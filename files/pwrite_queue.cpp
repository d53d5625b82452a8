// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "files/pwrite_queue.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "files/posix_file.h"

namespace zero::files {

PwriteQueue::PwriteQueue(const QueueOptions& options)
    : depth_(static_cast<std::size_t>(options.depth)) {
  const int threads = std::min(options.depth, options.threads);
  threads_.reserve(static_cast<std::size_t>(threads));
  try {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (const std::exception& error) {
    note_ = fmt::format("{} of {} threads: {} (ulimit -u and pids.max bound them)", threads_.size(),
                        threads, error.what());
  }
}

PwriteQueue::~PwriteQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  arrived_.notify_all();
}

TransferQueue::Ticket PwriteQueue::write(OutputFile& file, std::int64_t offset,
                                         std::span<const std::byte> bytes) {
  return submit(Transfer::write(posix_file(file), offset, bytes, Transfer::Mode::direct));
}

TransferQueue::Ticket PwriteQueue::read(InputFile& file, std::int64_t offset,
                                        std::span<std::byte> out) {
  return submit(Transfer::read(posix_file(file), offset, out, Transfer::Mode::direct));
}

TransferQueue::Ticket PwriteQueue::submit(Transfer transfer) {
  std::unique_lock lock(mutex_);
  if (threads_.empty()) {
    std::string error = error_of(std::move(transfer));
    ++last_;
    if (!error.empty()) failures_.emplace(last_, std::move(error));
    return last_;
  }
  ended_.wait(lock, [this] { return in_flight_.size() < depth_; });
  in_flight_.insert(++last_);
  waiting_.emplace_back(last_, std::move(transfer));
  arrived_.notify_one();
  return last_;
}

void PwriteQueue::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  ZERO_CHECK(ticket > 0 && ticket <= last_, "files: no transfer has ticket {}; the last is {}",
             ticket, last_);
  ended_.wait(lock, [&] { return !in_flight_.contains(ticket); });
  const auto failure = failures_.extract(ticket);
  ZERO_CHECK(failure.empty(), "{}", failure.mapped());
}

void PwriteQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto [ticket, transfer] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    std::string error = error_of(std::move(transfer));
    lock.lock();
    if (!error.empty()) failures_.emplace(ticket, std::move(error));
    in_flight_.erase(ticket);
    ended_.notify_all();
  }
}

}  // namespace zero::files
