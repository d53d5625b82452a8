// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/watch/run_time.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/launch/fake_ranks.h"

namespace zero {
namespace {

using testing::kSecond;

constexpr std::int64_t kLook = RunTime::kBetweenLooks;

TEST(RunTime, IsNoLongerThanTheTimeThatPassed) {
  RunTime time;
  std::int64_t cpu = 0;
  EXPECT_EQ(time.since_last(cpu, 0), 0);
  for (int look = 0; look < 10; ++look) {
    const std::int64_t ran = time.since_last(cpu += 8 * kLook, kLook);
    EXPECT_EQ(ran, kLook);
    time.spend(ran);
  }
}

// A core without a clock tick tells once a second what a thread has run there.
TEST(RunTime, OfASecondCountsWholeIfItIsToldLate) {
  RunTime time;
  std::int64_t cpu = 0;
  std::int64_t counted = time.since_last(cpu, 0);
  for (int look = 1; look <= 50; ++look) {
    const std::int64_t ran = time.since_last(cpu += look % 5 == 0 ? kSecond : 0, kLook);
    time.spend(ran);
    counted += ran;
  }
  EXPECT_EQ(counted, 10 * kSecond);
}

// It has waited for a core, and then many threads run at once.
TEST(RunTime, MakesUpForLittleOfALongWait) {
  RunTime time;
  time.since_last(0, 0);
  for (int look = 0; look < 100; ++look) time.since_last(0, kLook);
  EXPECT_EQ(time.since_last(3600 * kSecond, kLook), 6 * kLook);
}

// The time in which it sleeps counts where it sleeps, and not again later.
TEST(RunTime, IsNotMadeUpForBehindASleep) {
  RunTime time;
  time.since_last(0, 0);
  for (int look = 0; look < 100; ++look) {
    time.since_last(0, kLook);
    time.spend(kLook);
  }
  EXPECT_EQ(time.since_last(3600 * kSecond, kLook), kLook);
}

/// A process whose busiest thread runs for a look.
struct Process : host::Activity {
  Process() { busiest = {.id = 4711, .runnable = true}; }
  const Process& run(std::int64_t time = kLook) {
    busiest.cpu += time;
    return *this;
  }
};

TEST(LoopEvidence, BeginsWithTheFirstLook) {
  LoopEvidence evidence;
  Process process;
  evidence.look(process.run(3600 * kSecond), {}, kLook);
  EXPECT_EQ(evidence.time(), 0);
  evidence.look(process.run(kSecond), {}, kLook);
  EXPECT_EQ(evidence.time(), kLook) << "what is told late is of before";
}

TEST(LoopEvidence, CountsAnUnfinishedPartOnlyWhileTheThreadComputes) {
  LoopEvidence evidence;
  Process process;
  evidence.look(process, {}, kLook);
  for (int look = 0; look < 4; ++look) evidence.look(process.run(), {}, kLook);
  EXPECT_EQ(evidence.time(), 4 * kLook);
  process.busiest.kernel += kLook;
  evidence.look(process.run(), {}, kLook);
  EXPECT_EQ(evidence.time(), 3 * kLook) << "the part that is judged";
  evidence.look(process.run(), {}, kLook);
  EXPECT_EQ(evidence.time(), 0) << "a third of the next one was in the kernel";
}

TEST(LoopEvidence, IsGoneWithACallToTheDiskADeviceOrASleep) {
  LoopEvidence evidence;
  Process process;
  files::DiskCalls calls;
  const auto compute = [&] {
    for (int look = 0; look < 5; ++look) evidence.look(process.run(), calls, kLook);
    EXPECT_EQ(evidence.time(), 4 * kLook);
  };
  compute();
  calls = {.begun = 1, .ended = 1};
  evidence.look(process.run(), calls, kLook);
  EXPECT_EQ(evidence.time(), 0);
  evidence = {};
  compute();
  ++calls.begun;
  evidence.look(process.run(), calls, kLook);
  EXPECT_EQ(evidence.time(), 0);
  ++calls.ended;
  compute();
  process.in_device = true;
  evidence.look(process.run(), calls, kLook);
  EXPECT_EQ(evidence.time(), 0);
  process.in_device = false;
  compute();
  process.busiest.id = 0;
  evidence.look(process.run(), calls, kLook);
  EXPECT_EQ(evidence.time(), 0);
}

}  // namespace
}  // namespace zero
