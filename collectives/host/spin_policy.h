// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <chrono>
#include <string>
#include <vector>

namespace zero::host {

/// The cores that this process may use, as text for its peers.
std::string usable_cores();

/// How long a waiting rank spins and yields before it sleeps. If each rank can have a core of its
/// own, a wake-up would cost more than most waits, so the rank spins, for longer than the shortest
/// time slice of the kernel: ranks that fell out of step fall into step again. The rank then yields
/// for a while, because the kernel spreads runnable ranks over the cores but draws ranks that wake
/// each other to one core. If ranks outnumber cores, a waiting rank leaves its core to the ranks
/// that it waits for.
class SpinPolicy {
 public:
  /// `cores`: usable_cores() of every rank.
  explicit SpinPolicy(const std::vector<std::string>& cores);

  /// Spins and yields until `done()`; false if it is time to sleep first. Calls `idle()` while
  /// yielding.
  template <typename Done, typename Idle>
  bool outlasts(Done done, Idle idle) const {
    if (!own_core_) return yields(done, idle, Nanoseconds{0});
    return spins(done) || yields(done, idle, kYielding);
  }

 private:
  using Nanoseconds = std::chrono::nanoseconds;
  static constexpr Nanoseconds kSpinning{150'000};
  static constexpr Nanoseconds kYielding{1'000'000};
  static constexpr int kFirstLooks = 100;  // without a pause
  static constexpr int kLooksPerClock = 16;

  template <typename Done>
  static bool spins(Done done) {
    for (int i = 0; i < kFirstLooks; ++i) {
      if (done()) return true;
    }
    const auto end = std::chrono::steady_clock::now() + kSpinning;
    do {
      for (int i = 0; i < kLooksPerClock; ++i) {
        if (done()) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  template <typename Done, typename Idle>
  static bool yields(Done done, Idle idle, Nanoseconds longest) {
    const auto end = std::chrono::steady_clock::now() + longest;
    do {
      idle();
      sched_yield();
      if (done()) return true;
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  bool own_core_;
};

}  // namespace zero::host
