// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/team.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace zero::cpu {
namespace {

using Clock = std::chrono::steady_clock;

/// Spinning costs less than sleeps shorter than this, waking included.
constexpr std::chrono::microseconds kShortSleep{150};

thread_local bool in_share = false;
/// Set in a child of fork() whose only thread was inside a share.
thread_local bool forked_in_share = false;

void note_fork() { forked_in_share = in_share; }

/// Makes children of fork() call note_fork().
void watch_forks() {
  static const int failure = ::pthread_atfork(nullptr, nullptr, note_fork);
  ZERO_CHECK(failure == 0, "a team of threads cannot watch for fork(): {}",
             std::generic_category().message(failure));
}

void check_process() {
  if (!std::exchange(forked_in_share, false)) return;
  in_share = false;
  fail(
      "process {} was forked inside of a parallel loop of its parent, and goes on in it without "
      "the threads that do the rest; fork outside of the loop, or end the child inside by exec() "
      "or _exit()",
      ::getpid());
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

template <class Ready>
void SpinWait::wait(const Ready& ready, std::atomic<int>& value, int seen) {
  for (int i = 0; i < looks_; ++i) {
    if (ready()) return;
    pause_core();
  }
  const auto begin = Clock::now();
  for (; !ready(); seen = value.load(std::memory_order_acquire)) {
    value.wait(seen, std::memory_order_acquire);
  }
  const bool soon = Clock::now() - begin < kShortSleep;
  looks_ = soon ? std::min(kMost, 2 * looks_) : std::max(kLeast, looks_ / 2);
}

Team& Team::of_this_thread() {
  thread_local Team team;
  return team;
}

Team::~Team() { end_helpers(); }

void Team::end_helpers() {
  ending_ = true;
  wakeups_.fetch_add(1);
  wakeups_.notify_all();
  // A child of fork() has the handles alone.
  for (std::thread& helper : helpers_) ::getpid() == process_ ? helper.join() : helper.detach();
  helpers_.clear();
  ending_ = false;
}

void Team::grow(std::int64_t shares) {
  watch_forks();
  end_helpers();
  process_ = ::getpid();
  most_ = 0;
  states_ = std::make_unique<ShareState[]>(static_cast<std::size_t>(shares));
  most_ = shares;
  const int seen = wakeups_;
  try {
    for (std::int64_t own = 1; own < shares; ++own) {
      helpers_.emplace_back([this, own, seen] { help(own, seen); });
    }
  } catch (const std::system_error&) {
    // The caller does the shares of the missing helpers.
  }
}

void Team::run(std::int64_t shares, const Work& work) {
  if (in_share) {
    for (std::int64_t share = 0; share < shares; ++share) work(share);
    return;
  }
  if (shares > most_) grow(shares);
  work_ = &work;
  left_.store(static_cast<int>(shares), std::memory_order_relaxed);
  const std::uint64_t loop = loop_.load(std::memory_order_relaxed) + 1;
  for (std::int64_t share = 0; share < shares; ++share) {
    states_[static_cast<std::size_t>(share)].value.store(2 * loop, std::memory_order_release);
  }
  loop_.store(loop, std::memory_order_release);
  wakeups_.fetch_add(1);
  wakeups_.notify_all();
  work_on(loop, 0);
  spin_wait_.wait([&] { return left_.load(std::memory_order_acquire) == 0; }, left_,
                  left_.load(std::memory_order_acquire));
}

void Team::help(std::int64_t own, int seen) {
  SpinWait spin_wait;
  for (;;) {
    spin_wait.wait([&] { return wakeups_.load(std::memory_order_acquire) != seen; }, wakeups_,
                   seen);
    seen = wakeups_.load(std::memory_order_acquire);
    if (ending_) return;
    work_on(loop_.load(std::memory_order_acquire), own);
  }
}

void Team::work_on(std::uint64_t loop, std::int64_t own) {
  in_share = true;
  for (std::int64_t i = 0; i < most_; ++i) {
    const std::int64_t share = (own + i) % most_;
    auto& state = states_[static_cast<std::size_t>(share)].value;
    std::uint64_t open = 2 * loop;
    if (state.load(std::memory_order_relaxed) != open) continue;
    if (!state.compare_exchange_strong(open, open + 1, std::memory_order_acquire)) continue;
    (*work_)(share);
    check_process();
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
  }
  in_share = false;
}

}  // namespace zero::cpu
