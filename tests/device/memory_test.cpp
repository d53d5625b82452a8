// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "device/device.h"
#include "tests/errors.h"

namespace zero {
namespace {

using Changes = std::map<std::string, std::int64_t>;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Ledger, CountsCurrentAndPeakPerClass) {
  MemoryLedger ledger;
  ledger.charge(MemoryClass::gathered, "a", 100);
  ledger.charge(MemoryClass::gathered, "b", 50);
  ledger.release(MemoryClass::gathered, "a", 100);
  ledger.charge(MemoryClass::optimizer, "a", 7);
  const MemorySnapshot now = ledger.snapshot();
  EXPECT_EQ(50, now.current_of(MemoryClass::gathered));
  EXPECT_EQ(150, now.peak_of(MemoryClass::gathered));
  EXPECT_EQ(7, now.current_of(MemoryClass::optimizer));
  EXPECT_EQ(57, now.total_current());
  EXPECT_EQ((Changes{{"gathered/b", 50}, {"optimizer/a", 7}}), now.labels);
  EXPECT_EQ(3, ledger.allocations());
}

TEST(Ledger, DifferencesNameWhatGrewAndShrank) {
  MemoryLedger ledger;
  ledger.charge(MemoryClass::parameters, "kept", 1);
  ledger.charge(MemoryClass::parameters, "shrinks", 10);
  ledger.mark("before");
  ledger.release(MemoryClass::parameters, "shrinks", 10);
  ledger.charge(MemoryClass::staging, "new", 4);
  EXPECT_EQ((Changes{{"parameters/shrinks", -10}, {"staging/new", 4}}),
            difference(ledger.marked("before"), ledger.snapshot()));
  EXPECT_EQ((Changes{{"staging/new", 4}}), ledger.growth_since("before"));
}

TEST(Ledger, AMarkReplacesAnOlderOneOfItsName) {
  MemoryLedger ledger;
  ledger.mark("step");
  ledger.charge(MemoryClass::other, "x", 8);
  ledger.mark("step");
  EXPECT_TRUE(ledger.growth_since("step").empty());
}

TEST(Ledger, AMissingMarkIsNamed) {
  MemoryLedger ledger;
  EXPECT_EQ("the memory ledger has no snapshot \"seal\"; call mark first",
            message_of([&] { ledger.growth_since("seal"); }));
}

TEST(Ledger, ClassesHaveTheirNames) {
  std::set<std::string_view> names;
  for (const MemoryClass c : all_memory_classes()) names.insert(name_of(c));
  EXPECT_EQ(static_cast<std::size_t>(kMemoryClasses), names.size());
  EXPECT_EQ("gathered", name_of(MemoryClass::gathered));
  EXPECT_EQ("other", name_of(MemoryClass::other));
}

TEST(Buffers, ChargeWhatWasAskedForAndGiveItBack) {
  const auto device = cpu::open();
  {
    Buffer buffer = device->allocate(3, DType::bf16, MemoryClass::gradients, "g");
    EXPECT_EQ(6, device->ledger().snapshot().current_of(MemoryClass::gradients));
    EXPECT_EQ(3, buffer.view().count());
    EXPECT_EQ(device.get(), buffer.view().device());
  }
  const MemorySnapshot after = device->ledger().snapshot();
  EXPECT_EQ(0, after.total_current());
  EXPECT_EQ(6, after.peak_of(MemoryClass::gradients));
  EXPECT_TRUE(after.labels.empty());
}

TEST(Buffers, MovingMovesTheCharge) {
  const auto device = cpu::open();
  Buffer a = device->allocate(10, DType::fp32, MemoryClass::other, "a");
  void* const data = a.view().data();
  Buffer b = std::move(a);
  EXPECT_TRUE(a.empty());  // NOLINT: the moved-from state is what is tested
  EXPECT_EQ(data, b.view().data());
  Buffer c = device->allocate(5, DType::fp32, MemoryClass::other, "c");
  c = std::move(b);
  EXPECT_EQ((Changes{{"other/a", 40}}), device->ledger().snapshot().labels);
  c = Buffer();
  EXPECT_EQ(0, device->ledger().snapshot().total_current());
}

TEST(Buffers, AreAlignedAtEverySize) {
  const auto device = cpu::open();
  for (const std::int64_t count : {1, 17, 4096, (2 << 20) - 1, 2 << 20, (2 << 20) + 1}) {
    const Buffer buffer = device->allocate(count, DType::u8, MemoryClass::other, "x");
    EXPECT_EQ(0U, reinterpret_cast<std::uintptr_t>(buffer.view().data()) % 64) << count;
    std::memset(buffer.view().data(), 1, static_cast<std::size_t>(count));
  }
}

TEST(Buffers, OfNothingAreEmptyAndFree) {
  const auto device = cpu::open();
  const Buffer buffer = device->allocate(0, DType::fp32, MemoryClass::other, "nothing");
  EXPECT_TRUE(buffer.empty());
  EXPECT_EQ(DType::fp32, buffer.view().dtype());
  EXPECT_EQ(0, device->ledger().allocations());
}

TEST(Buffers, RefuseANegativeCount) {
  const auto device = cpu::open();
  EXPECT_EQ("device cpu: cannot allocate -1 elements for \"x\"",
            message_of([&] { device->allocate(-1, DType::fp32, MemoryClass::other, "x"); }));
}

TEST(Buffers, OutOfMemoryShowsTheLedgerAndWhatToDo) {
  const auto device = cpu::open();
  const Buffer held = device->allocate(25, DType::fp32, MemoryClass::optimizer, "moments");
  const std::string message = message_of([&] {
    device->allocate(std::int64_t{1} << 60, DType::fp32, MemoryClass::gathered, "window");
  });
  EXPECT_THAT(message, AllOf(HasSubstr("out of memory: 4611686018427387904 bytes"),
                             HasSubstr("gathered/window"), HasSubstr("optimizer 100"),
                             HasSubstr("use more ranks")));
  EXPECT_EQ(100, device->ledger().snapshot().total_current());
}

TEST(PlanningMemory, IsChargedDistinctAndAligned) {
  const auto device = planning::open(3);
  EXPECT_FALSE(device->has_memory());
  EXPECT_EQ(3, device->threads());
  const Buffer a = device->allocate(1, DType::u8, MemoryClass::other, "a");
  const Buffer b = device->allocate(std::int64_t{1} << 40, DType::fp64, MemoryClass::other, "b");
  const Buffer c = device->allocate(1, DType::u8, MemoryClass::other, "c");
  std::set<void*> addresses;
  for (const Buffer* buffer : {&a, &b, &c}) {
    EXPECT_EQ(0U, reinterpret_cast<std::uintptr_t>(buffer->view().data()) % 4096);
    addresses.insert(buffer->view().data());
  }
  EXPECT_EQ(3U, addresses.size());
  EXPECT_GE(static_cast<std::byte*>(c.view().data()) - static_cast<std::byte*>(b.view().data()),
            b.view().bytes());
  EXPECT_EQ((std::int64_t{8} << 40) + 2, device->ledger().snapshot().total_current());
}

TEST(PlanningMemory, EndsToo) {
  const auto device = planning::open();
  EXPECT_THAT(message_of([&] {
                device->allocate(std::int64_t{1} << 62, DType::u8, MemoryClass::other, "all");
              }),
              HasSubstr("device planning: out of memory"));
}

TEST(TestMemory, IsPoisonedOnAllocation) {
  const auto device = testing::open({});
  const Buffer buffer = device->allocate(5, DType::fp32, MemoryClass::other, "x");
  for (const float value : buffer.view().as<float>()) EXPECT_TRUE(std::isnan(value));
}

TEST(Devices, RefuseLessThanOneThread) {
  EXPECT_EQ("cpu device: threads is 0, expected at least 1",
            message_of([] { cpu::open({.threads = 0}); }));
  EXPECT_EQ("planning device: threads is -1, expected at least 1",
            message_of([] { planning::open(-1); }));
}

}  // namespace
}  // namespace zero
