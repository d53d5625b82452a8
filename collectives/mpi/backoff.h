// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

namespace zero::mpi {

/// Pauses between tests for completion. MPI has no blocking wait that sleeps, and ranks outnumber
/// cores: a waiting rank must leave its core to those that compute. A few yields catch messages
/// that are nearly done, then sleeps grow; late in a long wait each is a thirty-second of the wait,
/// so that a slow link costs few wake-ups and completion is seen at most 3 % late.
class Backoff {
 public:
  void pause() {
    if (yields_ < kYields) {
      ++yields_;
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    const auto waited = std::chrono::duration_cast<Micros>(Clock::now() - start_);
    sleep_ = std::min(sleep_ + sleep_ / 4, std::clamp(waited / 32, kLong, kLongest));
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Micros = std::chrono::microseconds;
  static constexpr int kYields = 4;
  static constexpr Micros kLong{200};
  static constexpr Micros kLongest{1000};

  Clock::time_point start_ = Clock::now();
  int yields_ = 0;
  Micros sleep_{20};
};

/// Calls `look` between tests until done(). Returns also if `look` throws when done() has come
/// true: the messages that arrived may say more than that failure.
template <typename Done, typename Look>
void wait_until(const Done& done, const Look& look) {
  Backoff backoff;
  while (!done()) {
    try {
      look();
    } catch (const std::exception&) {
      if (!done()) throw;
      return;
    }
    backoff.pause();
  }
}

}  // namespace zero::mpi
