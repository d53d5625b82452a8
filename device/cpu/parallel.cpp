// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>

#include "base/checked_math.h"

namespace zero::cpu {
namespace {

using Body = std::function<void(std::int64_t, std::int64_t)>;

// ThreadSanitizer cannot see the synchronization inside the OpenMP runtime: annotate it.
#if defined(__SANITIZE_THREAD__)
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
void order_before(void* team) { __tsan_release(team); }
void order_after(void* team) { __tsan_acquire(team); }
#else
void order_before(void* /*team*/) {}
void order_after(void* /*team*/) {}
#endif

/// The shared state of one parallel_for.
class Team {
 public:
  Team(std::int64_t count, std::int64_t grain, const Body& body)
      : count_(count), grain_(grain), body_(body) {}

  void begin() { order_before(this); }
  /// The share of member `member` of `members`.
  void run(std::int64_t member, std::int64_t members) {
    order_after(this);
    const std::int64_t grains = div_ceil(count_, grain_);
    const std::int64_t begin = grains * member / members * grain_;
    const std::int64_t end = std::min(count_, grains * (member + 1) / members * grain_);
    try {
      if (begin < end) body_(begin, end);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    order_before(this);
  }
  void end() {
    order_after(this);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::int64_t count_;
  std::int64_t grain_;
  const Body& body_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

/// Uninstrumented, only passes `team` on: OpenMP's transfer of the pointer looks like a race.
__attribute__((no_sanitize("thread"))) void run_on(int threads, Team& team) {
#pragma omp parallel num_threads(threads)
  team.run(omp_get_thread_num(), omp_get_num_threads());  // a nested region may get fewer
}

}  // namespace

void parallel_for(int threads, std::int64_t count, std::int64_t grain, const Body& body) {
  ZERO_CHECK(threads > 0 && grain > 0,
             "parallel_for needs threads and grain above 0, got {} and {}", threads, grain);
  if (count <= 0) return;
  const auto wanted = static_cast<int>(std::min<std::int64_t>(threads, div_ceil(count, grain)));
  if (wanted == 1) {
    body(0, count);
    return;
  }
  Team team(count, grain, body);
  team.begin();
  run_on(wanted, team);
  team.end();
}

}  // namespace zero::cpu
