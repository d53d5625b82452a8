// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/parallel.h"

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked_math.h"
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

using Body = std::function<void(std::int64_t, std::int64_t)>;

/// The rest of a thread's range, from whose back others may take: begin and end in one word.
class alignas(64) Share {
 public:
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t size() const { return end - begin; }
  };

  void put(Range range) { range_.store(range); }
  /// Empty at the end.
  Range take_front(std::uint32_t part) {
    return take([part](Range left) { return std::min(part, left.size()); },
                [](Range& left, std::uint32_t size) {
                  left.begin += size;
                  return Range{left.begin - size, left.begin};
                });
  }
  Range take_half() {
    return take([](Range left) { return left.size() - left.size() / 2; },
                [](Range& left, std::uint32_t size) {
                  left.end -= size;
                  return Range{left.end, left.end + size};
                });
  }

 private:
  template <class Size, class Cut>
  Range take(const Size& size_of, const Cut& cut) {
    Range before = range_.load();
    for (;;) {
      Range left = before;
      const Range taken = cut(left, size_of(before));
      if (taken.size() == 0 || range_.compare_exchange_weak(before, left)) return taken;
    }
  }

  std::atomic<Range> range_;
};

/// The next part of a thread: of its own share or, if that is done, of half of another's.
Share::Range next_part(std::vector<Share>& shares, std::size_t thread, std::uint32_t part) {
  Share::Range range = shares[thread].take_front(part);
  for (std::size_t i = 1; i < shares.size() && range.size() == 0; ++i) {
    range = shares[(thread + i) % shares.size()].take_half();
    if (range.size() <= part) continue;
    // Only the rest is published for others to take; this part is done next.
    shares[thread].put({range.begin + part, range.end});
    range.end = range.begin + part;
  }
  return range;
}

}  // namespace

void parallel_for(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  ZERO_CHECK(threads > 0 && grain > 0,
             "parallel_for needs threads and grain above 0, got {} and {}", threads, grain);
  if (count <= 0) return;
  if (threads == 1 || count <= grain) {
    body(0, count);
    return;
  }
  const std::int64_t grains = div_ceil(count, grain);
  const std::int64_t shares = std::min<std::int64_t>(threads, grains);
  std::mutex mutex;
  std::exception_ptr error;
  Team::of_this_thread().run(shares, [&](std::int64_t share) {
    const std::int64_t begin = grains * share / shares * grain;
    const std::int64_t end = std::min(count, grains * (share + 1) / shares * grain);
    try {
      body(begin, end);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  });
  if (error) std::rethrow_exception(error);
}

void parallel_shares(int threads, std::int64_t count, std::int64_t part,
                     const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& body) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  ZERO_CHECK(threads > 0 && part > 0 && part <= kMost && count <= kMost,
             "parallel_shares needs threads and parts above 0 and at most {}, got {} threads and "
             "{} in parts of {}",
             kMost, threads, count, part);
  if (count <= 0) return;
  const std::int64_t sharing = std::min<std::int64_t>(threads, count);
  const auto most = static_cast<std::uint32_t>(std::min(part, div_ceil(count, sharing)));
  std::vector<Share> shares(static_cast<std::size_t>(sharing));
  for (std::int64_t i = 0; i < sharing; ++i) {
    shares[static_cast<std::size_t>(i)].put(
        {static_cast<std::uint32_t>(count * i / sharing),
         static_cast<std::uint32_t>(count * (i + 1) / sharing)});
  }
  // Other threads do the share of a thread that starts late or never.
  parallel_for(threads, sharing, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t thread = first; thread < last; ++thread) {
      const auto at = static_cast<std::size_t>(thread);
      for (auto range = next_part(shares, at, most); range.size() > 0;
           range = next_part(shares, at, most)) {
        body(thread, range.begin, range.end);
      }
    }
  });
}

}  // namespace zero::cpu
