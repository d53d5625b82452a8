// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/memory_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"

namespace zero {
namespace {

TEST(LedgerTotals, PeakTogetherWhereClassesPeakApart) {
  MemoryLedger ledger;
  ledger.charge(MemoryClass::gathered, "a", 100);
  ledger.charge(MemoryClass::optimizer, "b", 30);  // 130 together
  ledger.release(MemoryClass::gathered, "a", 100);
  ledger.charge(MemoryClass::optimizer, "c", 60);  // 90
  const MemorySnapshot now = ledger.snapshot();
  EXPECT_EQ(90, now.total);
  EXPECT_EQ(130, now.peak_total);
  EXPECT_EQ(130, now.recent_peak);
  EXPECT_EQ(100 + 90, now.peak_of(MemoryClass::gathered) + now.peak_of(MemoryClass::optimizer))
      << "which never was";
}

TEST(LedgerTotals, ARecentPeakBeginsAtTheBytesOfItsMoment) {
  MemoryLedger ledger;
  ledger.charge(MemoryClass::other, "a", 100);
  ledger.charge(MemoryClass::other, "b", 50);
  ledger.release(MemoryClass::other, "b", 50);
  ledger.begin_peak();
  EXPECT_EQ(100, ledger.snapshot().recent_peak);
  ledger.charge(MemoryClass::other, "b", 20);
  ledger.release(MemoryClass::other, "b", 20);
  EXPECT_EQ(120, ledger.snapshot().recent_peak);
  EXPECT_EQ(150, ledger.snapshot().peak_total);
  ledger.release(MemoryClass::other, "a", 100);
  ledger.begin_peak();
  ledger.charge(MemoryClass::other, "c", 7);
  EXPECT_EQ(7, ledger.snapshot().recent_peak);
  EXPECT_EQ(150, ledger.snapshot().peak_total);
}

struct Event {
  MemoryClass memory_class;
  std::string label;
  std::int64_t bytes;
  std::int64_t total;
  bool operator==(const Event&) const = default;
};

MemoryLedger::Observer into(std::vector<Event>& events) {
  return [&events](const MemoryEvent& event) {
    events.push_back({event.memory_class, std::string(event.label), event.bytes, event.total});
  };
}

TEST(Observers, SeeEachChargeAndReleaseUntilTheyEnd) {
  const auto device = cpu::open();
  const Buffer before = device->allocate(1, DType::fp32, MemoryClass::other, "before");
  std::vector<Event> events;
  device->ledger().observe(into(events));
  {
    const Buffer a = device->allocate(3, DType::bf16, MemoryClass::gradients, "a");
    const Buffer none = device->allocate(0, DType::bf16, MemoryClass::gradients, "none");
    const Buffer b = device->allocate_host(5, DType::u8, MemoryClass::staging, "b");
  }
  std::vector<Event> others;
  device->ledger().observe(into(others));
  { const Buffer c = device->allocate(2, DType::u8, MemoryClass::other, "c"); }
  device->ledger().observe({});
  const Buffer after = device->allocate(1, DType::fp32, MemoryClass::other, "after");
  EXPECT_EQ((std::vector<Event>{{MemoryClass::gradients, "a", 6, 10},
                                {MemoryClass::staging, "b", 5, 15},
                                {MemoryClass::staging, "b", -5, 10},
                                {MemoryClass::gradients, "a", -6, 4}}),
            events);
  EXPECT_EQ((std::vector<Event>{{MemoryClass::other, "c", 2, 6}, {MemoryClass::other, "c", -2, 4}}),
            others);
}

TEST(Observers, SeeAllThreadsInOneOrder) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  MemoryLedger ledger;
  std::vector<Event> events;
  ledger.observe(into(events));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&ledger, label = std::to_string(t)] {
      for (int i = 1; i <= kRounds; ++i) ledger.charge(MemoryClass::staging, label, i);
      for (int i = 1; i <= kRounds; ++i) ledger.release(MemoryClass::staging, label, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(2U * kThreads * kRounds, events.size());
  std::int64_t total = 0;
  std::int64_t peak = 0;
  std::map<std::string, std::vector<std::int64_t>> of_thread;
  for (const Event& event : events) {
    total += event.bytes;
    peak = std::max(peak, total);
    ASSERT_EQ(total, event.total);
    of_thread[event.label].push_back(event.bytes);
  }
  EXPECT_EQ(0, total);
  EXPECT_EQ(peak, ledger.snapshot().peak_total);
  std::vector<std::int64_t> expected;
  for (int i = 1; i <= kRounds; ++i) expected.push_back(i);
  for (int i = 1; i <= kRounds; ++i) expected.push_back(-i);
  ASSERT_EQ(static_cast<std::size_t>(kThreads), of_thread.size());
  for (const auto& [label, bytes] : of_thread) EXPECT_EQ(expected, bytes) << label;
}

}  // namespace
}  // namespace zero
