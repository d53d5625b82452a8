// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/run_time.h"

#include <algorithm>

namespace zero {
namespace {

/// News of another host may come late, and then tells of two looks. A core without a clock tick
/// (nohz_full) tells once a second what a thread runs there.
constexpr std::int64_t kMostDue = 6 * RunTime::kBetweenLooks;
/// Parts are judged, and no looks: on a busy host a rank may run for a tick between two looks.
constexpr std::int64_t kPart = 500'000'000;
/// Of a part at most one in so many nanoseconds is in the kernel.
constexpr std::int64_t kUserShare = 5;
/// Of a part. What interrupts a loop may make it wait for a lock of the kernel.
constexpr std::int64_t kMostSwitches = 5;
/// Of a part, in pages: memory that is touched for the first time has thousands a second.
constexpr std::int64_t kMostFaults = 50;
/// Of a part, in bytes: half of a large page, of which a second may have few faults. A watchdog
/// that takes a stack gets less, beside pages of libraries.
constexpr std::int64_t kMostMemory = std::int64_t{1} << 20U;

}  // namespace

std::int64_t RunTime::since_last(std::int64_t cpu, std::int64_t passed) {
  const std::int64_t ran = cpu_ ? cpu - *cpu_ : 0;
  cpu_ = cpu;
  due_ = std::min(due_ + passed, kMostDue);
  return std::clamp<std::int64_t>(ran, 0, due_);
}

void RunTime::spend(std::int64_t time) { due_ = std::max<std::int64_t>(0, due_ - time); }

bool LoopEvidence::computes(const Part& part) {
  return part.kernel * kUserShare <= part.ran && part.switches <= kMostSwitches &&
         part.faults <= kMostFaults && part.memory <= kMostMemory;
}

/// A later thread may have the number of one that has ended: then it has done less.
bool LoopEvidence::goes_on(const Look& before, const Look& now) {
  return now.thread.id == before.thread.id && now.thread.cpu >= before.thread.cpu &&
         now.thread.kernel >= before.thread.kernel &&
         now.thread.switches >= before.thread.switches &&
         now.thread.faults >= before.thread.faults && now.calls == before.calls;
}

/// The first look: of the time before it nothing is known.
void LoopEvidence::begin(const Look& now) {
  *this = {};
  last_ = now;
  run_time_.since_last(now.thread.cpu, 0);
}

void LoopEvidence::look(const host::Activity& activity, const files::DiskCalls& calls,
                        std::int64_t passed) {
  const Look now{.thread = activity.busiest, .resident = activity.resident, .calls = calls};
  const bool in_disk_or_device = activity.in_device || calls.begun != calls.ended;
  if (now.thread.id == 0 || in_disk_or_device) {
    *this = {};
    return;
  }
  if (!last_ || !goes_on(*last_, now)) return begin(now);
  const Look before = *last_;
  last_ = now;
  const std::int64_t time = run_time_.since_last(now.thread.cpu, passed);
  run_time_.spend(time);
  part_.time += time;
  part_.ran += now.thread.cpu - before.thread.cpu;
  part_.kernel += now.thread.kernel - before.thread.kernel;
  part_.switches += now.thread.switches - before.thread.switches;
  part_.faults += now.thread.faults - before.thread.faults;
  part_.memory += std::max<std::int64_t>(0, now.resident - before.resident);
  if (part_.ran < kPart) return;
  if (!computes(part_)) return begin(now);
  judged_ += part_.time;
  part_ = {};
}

}  // namespace zero
