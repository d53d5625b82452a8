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
/// then sleeps grow.
class Backoff {
 public:
  void pause() {
    if (yields_ < kYields) {
      ++yields_;
      sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(sleep_ + sleep_ / 4, kLongest);
  }

 private:
  static constexpr int kYields = 4;
  static constexpr std::chrono::microseconds kLongest{200};

  int yields_ = 0;
  std::chrono::microseconds sleep_{20};
};

}  // namespace zero::mpi
