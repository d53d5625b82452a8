// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace zero::mpi {

/// Pauses between tests for completion. MPI has nothing to sleep on, and ranks outnumber cores: a
/// waiting rank must leave its core to those that compute. A few yields catch what is nearly done,
/// then sleeps grow. Where the end is expected late, sleeps are half of the way to it, so that a
/// slow link costs few wake-ups.
class Backoff {
 public:
  /// The wait is expected to take `expected` seconds; 0: unknown.
  explicit Backoff(double expected = 0)
      : expected_(std::chrono::duration_cast<Micros>(std::chrono::duration<double>(expected))) {}

  void pause() {
    if (yields_ < kYields) {
      ++yields_;
      sched_yield();
      return;
    }
    const auto left = expected_ - std::chrono::duration_cast<Micros>(Clock::now() - start_);
    if (left > kLong) {
      std::this_thread::sleep_for(std::min(left / 2, kLongest));
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ + sleep_ / 4, kLong);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Micros = std::chrono::microseconds;
  static constexpr int kYields = 4;
  static constexpr Micros kLong{200};
  static constexpr Micros kLongest{1000};  // what arrives meanwhile must fit the kernel's buffers

  Clock::time_point start_ = Clock::now();
  Micros expected_;
  int yields_ = 0;
  Micros sleep_{20};
};

}  // namespace zero::mpi
