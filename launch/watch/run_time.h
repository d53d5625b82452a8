// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/host/process.h"
#include "files/disk_calls.h"

namespace zero {

/// The time that threads have run, look by look, together no more than the time that passed.
class RunTime {
 public:
  /// Watchdogs look so often.
  static constexpr std::int64_t kBetweenLooks = 200'000'000;

  /// What they have run since the last look, of `cpu` nanoseconds in all; 0 at the first.
  std::int64_t since_last(std::int64_t cpu, std::int64_t passed);
  /// Takes `time` for counted, where the rank has not run it.
  void spend(std::int64_t time);

 private:
  std::optional<std::int64_t> cpu_{};  // at the last look
  std::int64_t due_ = 0;               // passed, and not run: a little at most
};

/// How long a rank has done nothing but compute: evidence that it loops without end, wherever it
/// is. Time counts that one thread has run, the same one, which runs or waits for a core whenever
/// somebody looks and runs more than all other threads of the process together. The evidence is
/// gone once there is another such thread or none, a thread waits for a device, or the process
/// calls the disk; and once, in half a second that the thread ran,
/// - more than a fifth was in the kernel,
/// - or it went to sleep of its own now and then, which no loop does,
/// - or it touched pages that the kernel had to supply, or the process got more of them:
/// the rank takes memory, reads or writes, makes connections or loads a driver.
class LoopEvidence {
 public:
  /// What a look sees of a rank that is in no collective and publishes nothing.
  void look(const host::Activity& activity, const files::DiskCalls& calls, std::int64_t passed);
  /// Nanoseconds since the first look; without those of an unfinished part of which the thread has
  /// done anything else up to now.
  std::int64_t time() const { return judged_ + (computes(part_) ? part_.time : 0); }

 private:
  struct Look {
    host::Thread thread{};
    std::int64_t resident = 0;
    files::DiskCalls calls{};
  };
  /// Of the thread's time; what is being judged.
  struct Part {
    std::int64_t ran = 0;
    std::int64_t time = 0;  // of `ran`, as far as it counts
    std::int64_t kernel = 0;
    std::int64_t switches = 0;
    std::int64_t faults = 0;
    std::int64_t memory = 0;  // bytes that the process got
  };
  static bool computes(const Part& part);
  static bool goes_on(const Look& before, const Look& now);
  void begin(const Look& now);

  RunTime run_time_{};
  std::optional<Look> last_{};
  Part part_{};
  std::int64_t judged_ = 0;  // time of the parts before
};

}  // namespace zero
