// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Ranks that others wait for and that do nothing but compute: where that is an endless loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "launch/watch/job_ranks.h"
#include "tests/launch/fake_ranks.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace testing;
using What = Finding::What;

/// What a thread does in a second of a core.
struct Work {
  double kernel = 0;    // share of the time
  double faults = 0;    // of pages
  double switches = 0;  // of its own
  double memory = 0;    // MiB that the process gets
};

/// Others wait for rank 2 in this phase, before any step.
struct Job : FakeRanks {
  explicit Job(const std::string& phase, int self = 0) : FakeRanks(self) {
    wait_for_2();
    for (int i = 0; i < 4; ++i) {
      at(i).phase = phase;
      at(i).mean_step_seconds = 0;
    }
    runs(kThread);
  }
  static constexpr int kThread = 4711;
  /// This thread of rank 2 runs most; 0: none runs.
  void runs(int thread) {
    activity_of(2).runnable = thread != 0;
    activity_of(2).busiest.id = thread;
  }
  host::Thread& thread() { return activity_of(2).busiest; }
  /// Between two looks, for so many times as long as that.
  void compute(double looks = 1, const Work& work = {}) {
    const double ran = looks * static_cast<double>(FaultFinder::kBetweenLooks);
    const auto of = [&](double a_second) {
      return static_cast<std::int64_t>(ran * 1e-9 * a_second);
    };
    host::Activity& activity = activity_of(2);
    activity.cpu += static_cast<std::int64_t>(ran);
    activity.resident += of(work.memory * 1024 * 1024);
    thread().cpu += static_cast<std::int64_t>(ran);
    thread().kernel += static_cast<std::int64_t>(ran * work.kernel);
    thread().faults += of(work.faults);
    thread().switches += of(work.switches);
  }
};

Finding after(Looks& looks, Job& job, double seconds, const Work& work = {}) {
  return looks.during(seconds, [&] { job.compute(1, work); });
}

/// After ten minutes of computing, with `deed` at each tenth look.
template <typename Deed>
Finding after_deeds(Looks& looks, Job& job, const Deed& deed) {
  int round = 0;
  return looks.during(600, [&] {
    job.compute();
    if (++round % 10 == 0) deed();
  });
}

TEST(Loops, ARankThatOnlyComputesIsNamedWithinThreeSeconds) {
  for (const char* const phase : {"start", "load", "save", "end", "between steps", "prompts"}) {
    for (const bool disk : {false, true}) {
      Job job(phase);
      if (disk) job.wait_for_2_and_its_disk(phase);
      Looks looks(job);
      EXPECT_EQ(after(looks, job, 2.2).what, What::nothing) << phase;
      const Finding found = after(looks, job, 0.8);
      EXPECT_EQ(found.what, What::hang) << phase;
      EXPECT_TRUE(found.speaks);
      EXPECT_THAT(found.culprits, ElementsAre(2)) << phase;
      EXPECT_THAT(found.stopped, IsEmpty());
    }
  }
}

// Calls to the disk of long before are no news.
TEST(Loops, ARankThatHasUsedItsDiskBeforeIsNamedInThatTimeToo) {
  Job job("load");
  job.at(2).disk_calls = {.begun = 8, .ended = 8};
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 2.2).what, What::nothing);
  EXPECT_THAT(after(looks, job, 0.8).culprits, ElementsAre(2));
}

TEST(Loops, LongStepsHaveLongLimits) {
  Job job("save");
  job.at(0).mean_step_seconds = 2;
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 9).what, What::nothing);
  EXPECT_THAT(after(looks, job, 1).culprits, ElementsAre(2));
}

// A second that a step must not take may be a second of work elsewhere.
TEST(Loops, AShorterLimitThatIsGivenIsOneOfSteps) {
  Job job("start");
  Looks looks(job, 1);
  EXPECT_EQ(after(looks, job, 2.2).what, What::nothing);
  EXPECT_THAT(after(looks, job, 0.8).culprits, ElementsAre(2));
}

// As where a save fails: others wait where a disk decides.
TEST(Loops, AreFoundWithinAStepToo) {
  Job job("update");
  job.wait_for_2_and_its_disk("update");
  for (int i = 0; i < 4; ++i) job.at(i).mean_step_seconds = 0.1;
  Looks looks(job);
  // What a rank does within a step is looked at after 0.6 s.
  EXPECT_THAT(after(looks, job, 3.4).culprits, ElementsAre(2));
}

// A unit, or a prompt, may be computed for long.
TEST(Loops, APassOfUnknownLengthIsNone) {
  for (const char* const phase : {"", "forward", "backward", "update", "first validation",
                                  "validation", "decode", "draft", "prefill"}) {
    Job job(phase);
    Looks looks(job);
    EXPECT_EQ(after(looks, job, 600).what, What::nothing) << phase;
  }
  for (const char* const phase : {"first validation", "draft", "prefill"}) {
    Job job(phase);
    for (int i = 0; i < 4; ++i) job.at(i).mean_step_seconds = 0.5;
    Looks looks(job);
    EXPECT_EQ(after(looks, job, 600).what, What::nothing) << phase;
  }
}

// The kernel clears pages, pins them, reads, makes connections or loads a driver.
TEST(Loops, ARankThatTheKernelWorksForIsNone) {
  Job job("start");
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 600, {.kernel = 0.3}).what, What::nothing);
}

TEST(Loops, ARankThatTouchesMemoryForTheFirstTimeIsNone) {
  for (const double faults : {120, 1000}) {
    Job job("start");
    Looks looks(job);
    EXPECT_EQ(after(looks, job, 600, {.faults = faults}).what, What::nothing) << faults;
  }
}

// Of large pages a second has few faults, and some sandboxes count none.
TEST(Loops, ARankWhoseMemoryGrowsIsNone) {
  Job job("start");
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 600, {.memory = 3}).what, What::nothing);
  int round = 0;
  const auto take_and_give_back = [&] {
    job.compute();
    job.activity_of(2).resident += ++round % 2 == 0 ? 1'000'000 : -1'000'000;
  };
  EXPECT_EQ(looks.during(600, take_and_give_back).what, What::nothing);
}

// For a reply of another thread, a lock or a moment of time.
TEST(Loops, AThreadThatSleepsBetweenLooksIsNone) {
  Job job("start");
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 600, {.switches = 11}).what, What::nothing);
}

// Threads of a pool, or a helper that polls beside the thread that works.
TEST(Loops, ThreadsThatTakeTurnsAreNone) {
  Job job("start");
  Looks looks(job);
  int round = 0;
  const auto take_turns = [&] {
    job.runs(Job::kThread + ++round / 8 % 2);
    job.compute();
  };
  EXPECT_EQ(looks.during(600, take_turns).what, What::nothing);
}

// A tick of the system's clock finds the thread in the kernel now and then.
TEST(Loops, ALittleOfTheKernelsWorkRefutesNoLoop) {
  Job job("start");
  Looks looks(job);
  const Work little{.kernel = 0.1, .faults = 40, .switches = 5, .memory = 1};
  EXPECT_THAT(after(looks, job, 3, little).culprits, ElementsAre(2));
}

// A single look may find much of it: a tick is a twentieth of that time.
TEST(Loops, HalfASecondIsJudgedAndNoLook) {
  Job job("start");
  Looks looks(job);
  int round = 0;
  const auto run = [&] { job.compute(1, {.kernel = ++round % 3 == 0 ? 0.4 : 0}); };
  EXPECT_THAT(looks.during(3, run).culprits, ElementsAre(2));
}

// Of what a rank did before others waited for it nobody knows whether it was a loop.
TEST(Loops, TimeInWhichNobodyWaitsForTheRankDoesNotCount) {
  for (const bool others_wait_for_others : {false, true}) {
    Job job("start");
    for (const int index : {0, 1, 3}) job.at(index).open.clear();
    if (others_wait_for_others) {
      for (const int index : {0, 1}) job.at(index).open = {collective(5, {0, 1})};
    }
    Looks looks(job);
    EXPECT_EQ(after(looks, job, 10).what, What::nothing);
    job.wait_for_2();
    EXPECT_EQ(after(looks, job, 2).what, What::nothing) << others_wait_for_others;
    EXPECT_THAT(after(looks, job, 0.4).culprits, ElementsAre(2)) << others_wait_for_others;
  }
}

TEST(Loops, WhatComesBehindOtherWorkIsJudgedByItself) {
  Job job("start");
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 10, {.kernel = 0.6}).what, What::nothing);
  EXPECT_EQ(after(looks, job, 1.8).what, What::nothing);
  EXPECT_THAT(after(looks, job, 1.2).culprits, ElementsAre(2));
}

// It computes between two waits, or another thread of it does.
TEST(Loops, ARankThatSleepsIsNone) {
  for (const bool device : {false, true}) {
    Job job("start");
    Looks looks(job);
    int round = 0;
    const auto compute_and_wait = [&] {
      const bool waits = ++round % 10 == 0;
      if (!waits) job.compute();
      job.runs(device || !waits ? Job::kThread : 0);
      job.activity_of(2).in_device = device && waits;
    };
    EXPECT_EQ(looks.during(600, compute_and_wait).what, What::nothing) << device;
  }
}

// Watchdogs run too, for milliseconds.
TEST(Loops, ARankThatSleepsForLongIsNone) {
  Job job("start");
  job.runs(0);
  Looks looks(job);
  EXPECT_EQ(looks.during(3600, [&] { job.compute(0.02); }).what, What::nothing);
}

TEST(Loops, ARankThatUsesItsDiskIsNone) {
  Job job("between steps");
  Looks looks(job);
  const auto read = [&] {
    ++job.at(2).disk_calls.begun;
    ++job.at(2).disk_calls.ended;
  };
  EXPECT_EQ(after_deeds(looks, job, read).what, What::nothing);
  ++job.at(2).disk_calls.begun;  // or a reader of its output does not read
  EXPECT_EQ(after(looks, job, 600).what, What::nothing);
}

TEST(Loops, ARankThatGivesSignsOfLifeIsNone) {
  Job job("end");
  Looks looks(job);
  EXPECT_EQ(after_deeds(looks, job, [&] { ++job.at(2).changed; }).what, What::nothing);
  EXPECT_FALSE(looks.suspected());
}

// It may connect, or wait for work before it on a stream.
TEST(Loops, ARankThatHasSubmittedACollectiveIsNone) {
  Job job("load");
  job.at(2).open = {collective(5, {0, 1, 2, 3})};
  job.at(2).open.front().started = 0;
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 600).what, What::nothing);
}

// Sixteen ranks on two cores, compilers beside them.
TEST(Loops, ARankThatWaitsForACoreIsHeldToTheTimeThatItRuns) {
  Job job("end");
  Looks looks(job);
  const auto run = [&] { job.compute(0.1); };
  EXPECT_EQ(looks.during(19.6, run).what, What::nothing);
  EXPECT_THAT(looks.during(2, run).culprits, ElementsAre(2));
  Job starved("end");
  Looks others(starved);
  EXPECT_EQ(others.during(600).what, What::nothing);
}

TEST(Loops, AThreadThatRunsForLongerThanALookIsNotBelieved) {
  Job job("end");
  Looks looks(job);
  const auto run = [&] { job.compute(8); };
  EXPECT_EQ(looks.during(1.8, run).what, What::nothing);
  EXPECT_THAT(looks.during(0.8, run).culprits, ElementsAre(2));
}

// Another has its number, and has done less.
TEST(Loops, AThreadThatEndsIsNone) {
  for (std::int64_t host::Thread::*const count : {&host::Thread::cpu, &host::Thread::kernel,
                                                  &host::Thread::switches, &host::Thread::faults}) {
    Job job("end");
    job.thread().*count = 3600 * kSecond;
    Looks looks(job);
    int round = 0;
    const auto end_now_and_then = [&] {
      job.compute();
      if (++round % 10 == 0) job.thread().*count -= kSecond;
    };
    EXPECT_EQ(looks.during(60, end_now_and_then).what, What::nothing);
  }
}

// Its system says once a second what a thread has run there.
TEST(Loops, ACoreWithoutAClockTickHidesNone) {
  Job job("end");
  Looks looks(job);
  int round = 0;
  const auto run = [&] {
    if (++round % 5 == 0) job.compute(5);
  };
  EXPECT_EQ(looks.during(2, run).what, What::nothing);
  EXPECT_THAT(looks.during(1, run).culprits, ElementsAre(2));
}

TEST(Loops, ARankThatLoopsKnowsBeforeTheLimit) {
  Job job("load", 2);
  job.wait_for_2_and_its_disk("load");
  Looks looks(job);
  EXPECT_EQ(after(looks, job, 2.2).what, What::nothing);
  EXPECT_TRUE(looks.suspected());
}

// By heartbeats, which may tell of two looks at once; the rank is alone on its host.
TEST(Loops, OfARankOfAnotherHostTheOneThatDecidesTells) {
  for (const bool decides : {true, false}) {
    Job job("save");
    job.spread({0, 0, 1, 2}, decides);
    Looks looks(job);
    int round = 0;
    const auto run = [&] {
      if (++round % 2 == 0) job.compute(2);
    };
    EXPECT_EQ(looks.during(decides ? 1.8 : 3.8, run).what, What::nothing);
    EXPECT_THAT(looks.during(1, run).culprits, ElementsAre(2)) << decides;
  }
}

// What it does is not known at once.
TEST(Loops, NewsOfAnotherHostMayComeALookLater) {
  Job job("save");
  job.spread({0, 0, 1, 2}, true);
  job.forget_activity_of(2);
  Looks looks(job);
  EXPECT_EQ(looks.during(0.8).what, What::nothing);
  job.runs(Job::kThread);
  EXPECT_THAT(after(looks, job, 2.8).culprits, ElementsAre(2));
}

// In a step a rank may be quiet for a while; elsewhere the looks begin at once.
TEST(Loops, HeartbeatsSayAtOnceWhatARankDoesThatMayLoop) {
  for (const char* const phase : {"save", "backward"}) {
    Job job(phase);
    JobRanks ranks(job, nullptr, 0);
    std::int64_t now = kSecond;
    const auto beat = [&] { return ranks.heartbeat(now += FaultFinder::kBetweenLooks, false); };
    EXPECT_FALSE(beat().ranks[2].activity);
    const Heartbeat next = beat();
    EXPECT_EQ(next.ranks[2].activity.has_value(), phase == std::string("save"));
    EXPECT_EQ(next.ranks[2].state.has_value(), phase == std::string("save"));
    EXPECT_FALSE(next.ranks[0].activity) << "it waits";
  }
}

}  // namespace
}  // namespace zero
