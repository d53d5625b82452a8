// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>

#include "device/stream.h"

namespace zero::cpu {

/// The progress of a stream: items are numbered from 1, `done` of them have run or were dropped.
/// Events of the stream share it, so they may outlive the stream. Thread-safe.
class Progress {
 public:
  /// Records the end of item `done() + 1`, with the stream's first error, if any.
  void advance(std::exception_ptr error = nullptr);
  std::int64_t done() const { return done_.load(std::memory_order_acquire); }
  /// Blocks until done() >= item: spins for some microseconds, then sleeps. Rethrows the stream's
  /// error if it occurred at or before `item`.
  void wait(std::int64_t item);
  /// Rethrows the stream's error, if any.
  void rethrow();
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::int64_t> done_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
  std::int64_t failed_at_ = 0;
};

/// The point after item `item` of the stream behind `progress`.
Event event_at(std::shared_ptr<Progress> progress, std::int64_t item);

/// The current exception in the form that streams report: unchanged if a zero::Error or not a
/// std::exception; otherwise a zero::Error that names the work `what`.
std::exception_ptr current_error(std::string_view what);

/// Waits for `event` if it is not complete and adds the nanoseconds to `waited`; rethrows the
/// event's error in either case.
void wait_and_count(const Event& event, std::atomic<std::int64_t>& waited);

}  // namespace zero::cpu
