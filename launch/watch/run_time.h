// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/host/process.h"

namespace zero {

/// The time that a rank's threads have run, look by look, together no more than the time that
/// passed.
class RunTime {
 public:
  /// Watchdogs look so often.
  static constexpr std::int64_t kBetweenLooks = 200'000'000;

  /// What they have run since the last look; 0 at the first.
  std::int64_t since_last(const host::Activity& activity, std::int64_t passed);
  /// Takes `time` for counted, where the rank has not run it.
  void spend(std::int64_t time);

 private:
  std::optional<std::int64_t> cpu_{};  // at the last look
  std::int64_t due_ = 0;               // passed, and not run: a little at most
};

/// How long a rank has done nothing but compute: evidence that it loops without end, wherever it
/// is. Time counts that its threads have run, as long as one of them runs or waits for a core
/// whenever somebody looks. The evidence is gone once, of half a second that they ran, more than a
/// fifth was in the kernel, or pages were touched that the kernel had to supply: the rank takes
/// memory, reads or writes, makes connections or loads a driver. So it is if all threads sleep, or
/// one waits for a device.
class LoopEvidence {
 public:
  /// What a look sees of a rank that is in no collective and publishes nothing. `before`: the time
  /// before the first look that counts too.
  void look(const host::Activity& activity, std::int64_t passed, std::int64_t before);
  /// Nanoseconds.
  std::int64_t time() const { return time_; }

 private:
  /// Over all threads; of the part of the time that is being judged.
  struct Part {
    std::int64_t ran = 0;
    std::int64_t kernel = 0;
    std::int64_t faults = 0;
  };
  static bool computes(const Part& part);
  void refute();

  RunTime run_time_{};
  std::optional<host::Activity> last_{};
  Part part_{};
  std::int64_t time_ = 0;
};

}  // namespace zero
