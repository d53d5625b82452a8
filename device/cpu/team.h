// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace zero::cpu {

/// Spins before it sleeps: longer after short sleeps, shorter after long ones, so that threads of a
/// busy machine leave their cores to others.
class SpinWait {
 public:
  /// Returns once `ready()` holds; `value` differs from `seen` by then.
  template <class Ready>
  void wait(const Ready& ready, std::atomic<int>& value, int seen);

 private:
  static constexpr int kLeast = 32;
  static constexpr int kMost = 4096;  // looks, of some 10 to 40 ns each
  int looks_ = kMost;
};

/// The helpers of one host thread in its parallel loops. A loop consists of shares. Its caller does
/// share 0, helper i share i, and each then does shares that no thread has begun: a loop waits for
/// shares that were begun, and never for a helper that the system has not woken or that does not
/// exist.
/// Belongs to the thread that runs the loops; the helpers end with it.
class Team {
 public:
  using Work = std::function<void(std::int64_t share)>;

  /// The calling thread's own.
  static Team& of_this_thread();

  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  /// Runs work(0) to work(shares - 1), each once, on the caller and up to `shares - 1` helpers;
  /// returns when all have run. `work` does not throw. A call inside a share runs all shares on the
  /// caller. Goes on without helpers that the system refuses to start. A child of fork() inside a
  /// share lacks the threads of the other shares: its share ends with zero::Error, which run()
  /// throws on the caller and which ends the child on a helper.
  void run(std::int64_t shares, const Work& work);

 private:
  /// Twice the loop's number until a thread begins the share, one more from then on.
  struct alignas(64) ShareState {
    std::atomic<std::uint64_t> value{1};
  };

  void grow(std::int64_t shares);
  void end_helpers();
  void help(std::int64_t own, int seen);
  /// Does the loop's shares that no thread has begun, `own` before the others.
  void work_on(std::uint64_t loop, std::int64_t own);

  std::vector<std::thread> helpers_;
  std::unique_ptr<ShareState[]> states_;
  std::int64_t most_ = 0;       // shares that states_ has room for
  pid_t process_ = 0;           // of the helpers: a child of fork() has none
  const Work* work_ = nullptr;  // read by threads that have begun a share of its loop
  SpinWait spin_wait_;
  alignas(64) std::atomic<std::uint64_t> loop_{0};
  std::atomic<int> wakeups_{0};  // of helpers: one for each loop, one for the end
  std::atomic<bool> ending_{false};
  alignas(64) std::atomic<int> left_{0};  // shares of the loop that are not done
};

}  // namespace zero::cpu
