// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/run_time.h"

#include <algorithm>

namespace zero {
namespace {

/// Parts are judged, and no looks: the system samples where a thread is a hundred times a second,
/// and on a busy host a rank may run for a tick between two looks.
constexpr std::int64_t kPart = 500'000'000;
/// Of a part at most one in so many nanoseconds is in the kernel.
constexpr std::int64_t kUserShare = 5;
/// Page faults in a second: watchdogs and drivers have some. Memory that is touched for the first
/// time has thousands, unless its pages are large.
constexpr std::int64_t kMostFaults = 100;

}  // namespace

std::int64_t RunTime::since_last(const host::Activity& activity, std::int64_t passed) {
  const std::int64_t ran = cpu_ ? activity.cpu - *cpu_ : 0;
  cpu_ = activity.cpu;
  // News of another host may come late, and then tells of two looks.
  due_ = std::min(due_ + passed, 2 * kBetweenLooks);
  return std::clamp<std::int64_t>(ran, 0, due_);
}

void RunTime::spend(std::int64_t time) { due_ = std::max<std::int64_t>(0, due_ - time); }

bool LoopEvidence::computes(const Part& part) {
  return part.kernel * kUserShare <= part.ran &&
         part.faults * 1'000'000'000 <= part.ran * kMostFaults;
}

void LoopEvidence::refute() {
  time_ = 0;
  part_ = {};
}

void LoopEvidence::look(const host::Activity& activity, std::int64_t passed, std::int64_t before) {
  const std::int64_t ran = run_time_.since_last(activity, passed);
  run_time_.spend(ran);
  const host::Activity last = last_.value_or(activity);
  if (!last_) time_ = before;
  last_ = activity;
  const Part since{.ran = activity.cpu - last.cpu,
                   .kernel = activity.kernel - last.kernel,
                   .faults = activity.faults - last.faults};
  const bool sleeps = !activity.runnable || activity.in_device;
  const bool ended = since.ran < 0 || since.kernel < 0 || since.faults < 0;  // a thread
  if (sleeps || ended) return refute();
  time_ += ran;
  part_ = {part_.ran + since.ran, part_.kernel + since.kernel, part_.faults + since.faults};
  if (part_.ran < kPart) return;
  if (!computes(part_)) return refute();
  part_ = {};
}

}  // namespace zero
