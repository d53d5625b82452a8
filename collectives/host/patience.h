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

/// How long a rank tries before it sleeps. Where each rank can have a core of its own a wake-up
/// would cost more than most waits; where ranks outnumber cores, who waits must leave its core to
/// those that are waited for.
class Patience {
 public:
  /// For ranks with these usable_cores().
  explicit Patience(const std::vector<std::string>& cores);

  /// Whether `done()` came true within this patience.
  template <typename Done>
  bool outlasts(Done done) const {
    return own_core_ ? spins(done) : yields(done);
  }

 private:
  static constexpr std::chrono::microseconds kSpin{40};
  static constexpr int kLooksPerClock = 64;
  static constexpr int kYields = 2;

  template <typename Done>
  static bool spins(Done done) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
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

  template <typename Done>
  static bool yields(Done done) {
    for (int i = 0; i < kYields; ++i) {
      if (done()) return true;
      sched_yield();
    }
    return done();
  }

  bool own_core_;
};

}  // namespace zero::host
