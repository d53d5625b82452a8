// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/cgroup.h"
#include "base/host.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

constexpr std::int64_t kKiB = 1024;

auto growth(MemoryClass memory_class, const std::string& label, std::int64_t bytes) {
  return AllOf(Field(&MemoryGrowth::memory_class, memory_class), Field(&MemoryGrowth::label, label),
               Field(&MemoryGrowth::bytes, bytes));
}

Buffer bytes_of(Device& device, std::int64_t count, MemoryClass memory_class,
                const std::string& label) {
  return device.allocate(count, DType::u8, memory_class, label);
}

TEST(Monitors, KeepMomentsWithThePeakOfEachStretch) {
  const auto device = cpu::open();
  const Buffer kept = bytes_of(*device, 100, MemoryClass::parameters, "kept");
  { const Buffer early = bytes_of(*device, 900, MemoryClass::other, "before the monitor"); }
  MemoryMonitor monitor(*device);
  EXPECT_THAT(monitor.moments(), IsEmpty());
  { const Buffer passing = bytes_of(*device, 50, MemoryClass::activations, "passing"); }
  const MemoryMoment first = monitor.snapshot("forward");
  const Buffer grown = bytes_of(*device, 7, MemoryClass::gradients, "grown");
  monitor.snapshot("backward");
  monitor.snapshot("step");
  EXPECT_EQ("forward", first.label);
  EXPECT_EQ(100, first.memory.total);
  EXPECT_EQ(150, first.memory.recent_peak);
  EXPECT_EQ(1000, first.memory.peak_total);
  ASSERT_EQ(3U, monitor.moments().size());
  EXPECT_EQ(107, monitor.moments()[1].memory.recent_peak);
  EXPECT_EQ(107, monitor.moments()[2].memory.recent_peak);
  EXPECT_EQ(7, monitor.moments()[1].memory.labels.at("gradients/grown"));
  EXPECT_GE(first.seconds, 0.0);
  EXPECT_GE(monitor.moments()[1].seconds, first.seconds);
  EXPECT_GE(monitor.moments()[2].seconds, monitor.moments()[1].seconds);
}

TEST(Monitors, WhatIsReservedHasThePagesOfLargeBuffers) {
  const auto device = cpu::open();
  MemoryMonitor monitor(*device);
  EXPECT_EQ(0, monitor.snapshot("empty").reserved);
  const std::int64_t page = page_bytes();
  {
    const Buffer small = bytes_of(*device, 65, MemoryClass::other, "small");
    EXPECT_EQ(128, monitor.snapshot("small").reserved) << "lines of 64 bytes";
    const Buffer large = bytes_of(*device, (4 << 20) + 1, MemoryClass::other, "large");
    const MemoryMoment& both = monitor.snapshot("both");
    EXPECT_EQ(65 + (4 << 20) + 1, both.memory.total);
    EXPECT_EQ(128 + (4 << 20) + page, both.reserved);
  }
  EXPECT_EQ(0, monitor.snapshot("empty again").reserved);
  const Buffer owned =
      device->adopt(std::make_shared<int>(7), 1, DType::i32, MemoryClass::gathered, "adopted");
  EXPECT_EQ(DeviceBytes::kPage, monitor.snapshot("adopted").reserved);
}

TEST(Monitors, AGpusPlanReservesItsBlocksPages) {
  const auto device = planning::open(1, MemorySpace::device, DeviceKind::cuda);
  MemoryMonitor monitor(*device);
  const MemoryMoment opened = monitor.snapshot("opened");
  // The kernels' scratch: a page of the class `communication`, which holds 544 bytes; on the host
  // as many, and two pieces of 4 MiB.
  EXPECT_EQ(2 * 544 + (8 << 20), opened.memory.total);
  EXPECT_EQ(opened.memory.total - 544 + DeviceBytes::kPage, opened.reserved);
  {
    const Buffer buffer = bytes_of(*device, 100, MemoryClass::optimizer, "moments");
    EXPECT_EQ(opened.reserved + DeviceBytes::kPage, monitor.snapshot("allocated").reserved);
  }
  EXPECT_EQ(opened.reserved + DeviceBytes::kPage, monitor.snapshot("released").reserved)
      << "a block stays";
  EXPECT_EQ(0, opened.device.total) << "a plan has no memory of its own";
  EXPECT_EQ(0, opened.device.free);
}

TEST(Monitors, ACpusCapacityIsWhatTheHostAndItsControlGroupGive) {
  const auto device = cpu::open();
  const MemoryCapacity capacity = device->capacity();
  EXPECT_EQ(total_memory().value_or(0), capacity.total);
  EXPECT_GT(capacity.total, 0);
  EXPECT_GT(capacity.free, 0);
  EXPECT_LE(capacity.free, capacity.total);
}

TEST(Monitors, ComparedMomentsNameWhatGrewAndWhatShrank) {
  MemoryMoment a;
  a.memory.labels = {{"gathered/window", 10}, {"gradients/g", 70}, {"optimizer/m", 5}};
  MemoryMoment b;
  b.memory.labels = {{"activations/x/y", 3}, {"gathered/window", 510}, {"optimizer/m", 5}};
  EXPECT_THAT(MemoryMonitor::compare(a, b),
              ElementsAre(growth(MemoryClass::gathered, "window", 500),
                          growth(MemoryClass::activations, "x/y", 3),
                          growth(MemoryClass::gradients, "g", -70)));
  EXPECT_THAT(MemoryMonitor::compare(a, a), IsEmpty());
  EXPECT_EQ(500.0, MemoryMonitor::compare(a, b)[0].bytes_per_moment);
}

/// Moments at which one label has the bytes that `bytes_at` gives for 0, 1, ...; 0: no such label.
std::vector<MemoryMoment> series(int moments, const std::function<std::int64_t(int)>& bytes_at) {
  std::vector<MemoryMoment> made(static_cast<std::size_t>(moments));
  for (int i = 0; i < moments; ++i) {
    auto& labels = made[static_cast<std::size_t>(i)].memory.labels;
    labels["parameters/constant"] = 1 << 20;
    if (const std::int64_t bytes = bytes_at(i); bytes != 0) labels["staging/batch"] = bytes;
  }
  return made;
}

std::vector<MemoryGrowth> leaks(int moments, const std::function<std::int64_t(int)>& bytes_at,
                                std::int64_t threshold = 1) {
  return MemoryMonitor::leaks_of(series(moments, bytes_at), threshold);
}

TEST(Leaks, AnInjectedKibibyteAStepIsNamedAfterTwentySteps) {
  const auto device = cpu::open();
  const Buffer kept = bytes_of(*device, 1 << 20, MemoryClass::parameters, "kept");
  MemoryMonitor monitor(*device);
  std::vector<Buffer> leaked;
  for (int step = 0; step < 20; ++step) {
    const Buffer passing =
        bytes_of(*device, 5000 + 977 * (step % 3), MemoryClass::activations, "passing");
    leaked.push_back(bytes_of(*device, kKiB, MemoryClass::staging, "batch"));
    monitor.snapshot("step");
  }
  ASSERT_THAT(monitor.leaks(16 * kKiB),
              ElementsAre(growth(MemoryClass::staging, "batch", 19 * kKiB)));
  EXPECT_EQ(1024.0, monitor.leaks(16 * kKiB)[0].bytes_per_moment);
  EXPECT_THAT(monitor.leaks(20 * kKiB), IsEmpty()) << "below the threshold";
}

TEST(Leaks, WarmUpIsNone) {
  for (const int moments : {16, 20, 21, 100, 1000}) {
    EXPECT_THAT(leaks(moments, [](int i) { return i < 1 ? 0 : 1 << 20; }), IsEmpty());
    EXPECT_THAT(leaks(moments, [](int i) { return std::min(i, 3) * kKiB; }), IsEmpty()) << moments;
    // The first evaluation, halfway; and the first save, at three quarters.
    EXPECT_THAT(leaks(moments, [=](int i) { return (2 * i < moments ? 1 : 3) * kKiB; }), IsEmpty());
    EXPECT_THAT(leaks(moments,
                      [=](int i) {
                        return (2 * i < moments ? 1 : 3) * kKiB +
                               (4 * i < 3 * moments ? 0 : 7 * kKiB);
                      }),
                IsEmpty())
        << moments;
  }
}

TEST(Leaks, ASawtoothIsNone) {
  for (const int moments : {16, 20, 33, 64, 200}) {
    for (int period = 2; 2 * period <= moments; period += 1 + period / 20) {
      for (int phase = 0; phase < period; phase += 1 + period / 10) {
        EXPECT_THAT(leaks(moments, [=](int i) { return kKiB * (1 + (i + phase) % period); }),
                    IsEmpty())
            << moments << " moments, a tooth of " << period << " from " << phase;
      }
    }
  }
}

TEST(Leaks, SizesThatChangeByChanceAreRarelyTakenForOne) {
  int alarms = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    if (!leaks(20, [&](int) {
           return kKiB * static_cast<std::int64_t>(1 + random() % 1000);
         }).empty())
      ++alarms;
  }
  EXPECT_LE(alarms, 5) << "of 1000: six parts rise by chance once in 720";
}

TEST(Leaks, ShrinkingAndConstantMemoryIsNone) {
  EXPECT_THAT(leaks(50, [](int i) { return 100 * kKiB - i * kKiB; }), IsEmpty());
  EXPECT_THAT(leaks(50, [](int) { return 5 * kKiB; }), IsEmpty());
  EXPECT_THAT(leaks(50, [](int i) { return kKiB * (i < 25 ? i : 50 - i); }), IsEmpty());
  EXPECT_THAT(leaks(15, [](int i) { return kKiB * i; }), IsEmpty()) << "too few to tell";
  EXPECT_THAT(MemoryMonitor::leaks_of({}, 1), IsEmpty());
}

TEST(Leaks, UnderASawtoothAreNamedByTheirFloor) {
  // Teeth of 4 moments and 3 MiB, whose floor rises by 100 bytes a moment.
  const auto found = leaks(
      40, [](int i) { return (1 << 20) * (1 + i % 4) + 100 * i; }, 3000);
  ASSERT_THAT(found, ElementsAre(growth(MemoryClass::staging, "batch", 3900)));
  EXPECT_EQ(100.0, found[0].bytes_per_moment);
}

TEST(Leaks, OfEveryFewStepsAreNamed) {
  // 8 parts of 5 moments, each with one more leak of 10 KiB than the part before.
  const auto found = leaks(40, [](int i) { return 10 * kKiB * (1 + i / 5); });
  ASSERT_THAT(found, ElementsAre(growth(MemoryClass::staging, "batch", 70 * kKiB)));
  EXPECT_EQ(2.0 * kKiB, found[0].bytes_per_moment);
}

TEST(Leaks, ThatStartLateAreNamedOnceTheyPassAllBefore) {
  const auto late = [](int i) { return 50 * kKiB + (i < 600 ? 0 : kKiB * (i - 600)); };
  const auto found = leaks(1000, late);
  ASSERT_THAT(found, ElementsAre(Field(&MemoryGrowth::bytes_per_moment, 1024.0)));
  EXPECT_GE(found[0].bytes, 200 * kKiB);
  const auto below = [&](int i) { return i == 100 ? 10'000 * kKiB : late(i); };
  EXPECT_THAT(leaks(1000, below), IsEmpty()) << "it had far more before";
}

TEST(Leaks, TheFastestComeFirst) {
  std::vector<MemoryMoment> moments(20);
  for (int i = 0; i < 20; ++i) {
    moments[static_cast<std::size_t>(i)].memory.labels = {
        {"activations/slow", 10 * i}, {"other/fast", 30 * i}, {"gathered/middle", 20 * i}};
  }
  EXPECT_THAT(MemoryMonitor::leaks_of(moments, 1),
              ElementsAre(growth(MemoryClass::other, "fast", 570),
                          growth(MemoryClass::gathered, "middle", 380),
                          growth(MemoryClass::activations, "slow", 190)));
}

}  // namespace
}  // namespace zero
