// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "device/arena_layout.h"
#include "device/device.h"
#include "tests/errors.h"
#include "tests/support/test_device.h"

namespace zero {
namespace {

using Labels = std::map<std::string, std::int64_t>;
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
  EXPECT_EQ((Labels{{"gathered/b", 50}, {"optimizer/a", 7}}), now.labels);
  EXPECT_EQ(3, ledger.allocations());
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
  EXPECT_EQ(0, after.current_of(MemoryClass::gradients));
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
  EXPECT_EQ((Labels{{"other/a", 40}}), device->ledger().snapshot().labels);
  c = Buffer();
  EXPECT_TRUE(device->ledger().snapshot().labels.empty());
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
            error_of([&] { device->allocate(-1, DType::fp32, MemoryClass::other, "x"); }));
}

TEST(Buffers, OutOfMemoryShowsTheLedgerAndWhatToDo) {
  const auto device = cpu::open();
  const Buffer held = device->allocate(25, DType::fp32, MemoryClass::optimizer, "moments");
  const std::string message = error_of([&] {
    device->allocate(std::int64_t{1} << 60, DType::fp32, MemoryClass::gathered, "window");
  });
  EXPECT_THAT(message, AllOf(HasSubstr("out of memory: 4611686018427387904 bytes"),
                             HasSubstr("gathered/window"), HasSubstr("optimizer 100"),
                             HasSubstr("use more ranks")));
  EXPECT_EQ((Labels{{"optimizer/moments", 100}}), device->ledger().snapshot().labels);
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
  EXPECT_EQ((std::int64_t{8} << 40) + 2,
            device->ledger().snapshot().current_of(MemoryClass::other));
}

TEST(PlanningMemory, OfAGpuLiesAsInItsArenas) {
  const auto device = planning::open(1, MemorySpace::device, DeviceKind::cuda);
  const DeviceBytes opened = device->device_bytes();
  EXPECT_EQ(2 * 512, opened.arenas[5]);  // the norms' limbs: 272 bytes each, at multiples of 256
  {
    const Buffer a = device->allocate(1, DType::u8, MemoryClass::optimizer, "a");
    const Buffer b = device->allocate(257, DType::u8, MemoryClass::optimizer, "b");
    const Buffer host = device->allocate_host(99, DType::u8, MemoryClass::optimizer, "of the host");
    EXPECT_EQ(static_cast<std::byte*>(a.view().data()) + 256, b.view().data());
    EXPECT_EQ(256 + 512, device->device_bytes().arenas[3]);
  }
  const Buffer large = device->allocate(3 << 20, DType::u8, MemoryClass::gathered, "windows");
  const Buffer adopted = device->adopt(nullptr, 5, DType::fp32, MemoryClass::gathered, "window");
  const DeviceBytes bytes = device->device_bytes();
  EXPECT_EQ(256 + 512, bytes.arenas[3]);
  EXPECT_EQ(3 << 20, bytes.arenas[1]);
  EXPECT_EQ(DeviceBytes::kPage, bytes.adopted);
  EXPECT_EQ((2 + 1 + 1 + 1) * DeviceBytes::kPage, bytes.in_pages());
  EXPECT_EQ(20, device->ledger().snapshot().labels.at("gathered/window"));
}

TEST(Buffers, OfALibrarysMemoryGoBackToIt) {
  const auto device = cpu::open();
  auto memory = std::make_shared<int>(7);
  const std::weak_ptr<int> alive = memory;
  {
    const Buffer buffer =
        device->adopt(std::move(memory), 1, DType::i32, MemoryClass::gathered, "window");
    EXPECT_EQ(7, buffer.view().as<std::int32_t>()[0]);
    EXPECT_EQ(4, device->ledger().snapshot().current_of(MemoryClass::gathered));
  }
  EXPECT_TRUE(alive.expired());
  EXPECT_TRUE(device->ledger().snapshot().labels.empty());
  EXPECT_EQ("device cpu: no memory to adopt for 1 elements of \"window\"", error_of([&] {
              device->adopt(nullptr, 1, DType::i32, MemoryClass::gathered, "window");
            }));
}

/// The arena's rule, written down byte for byte: each 256 bytes have an owner, 0 is nobody.
class NaiveLayout {
 public:
  explicit NaiveLayout(std::size_t pieces) : owners_(pieces, 0) {}

  std::optional<std::int64_t> take(std::int64_t bytes, int owner) {
    const auto count = static_cast<std::size_t>((bytes + 255) / 256);
    for (std::size_t begin = 0; begin + count <= owners_.size(); ++begin) {
      const auto first = owners_.begin() + static_cast<std::ptrdiff_t>(begin);
      if (!std::all_of(first, first + static_cast<std::ptrdiff_t>(count),
                       [](int held) { return held == 0; }))
        continue;
      std::fill_n(first, count, owner);
      high_ = std::max(high_, begin + count);
      return static_cast<std::int64_t>(256 * begin);
    }
    return std::nullopt;
  }
  void give_back(int owner) { std::replace(owners_.begin(), owners_.end(), owner, 0); }
  std::int64_t high_water() const { return static_cast<std::int64_t>(256 * high_); }

 private:
  std::vector<int> owners_;
  std::size_t high_ = 0;
};

TEST(ArenaLayouts, FollowTheNaiveRuleInAnyOrder) {
  struct Taken {
    int owner;
    std::int64_t begin;
    std::int64_t bytes;
  };
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const std::int64_t capacity = 256 * (20 + static_cast<std::int64_t>(random() % 200)) + 17;
    ArenaLayout layout(capacity);
    NaiveLayout naive(static_cast<std::size_t>(capacity / 256));
    std::vector<Taken> taken;
    for (int owner = 1; owner <= 150; ++owner) {
      if (!taken.empty() && random() % 5 < 2) {
        std::swap(taken[random() % taken.size()], taken.back());
        layout.give_back(taken.back().begin, taken.back().bytes);
        naive.give_back(taken.back().owner);
        taken.pop_back();
        continue;
      }
      const auto bytes = static_cast<std::int64_t>(1 + random() % 5000);
      const auto begin = layout.take(bytes);
      ASSERT_EQ(naive.take(bytes, owner), begin) << "seed " << seed;
      if (begin) taken.push_back({owner, *begin, bytes});
    }
    EXPECT_EQ(naive.high_water(), layout.high_water()) << "seed " << seed;
    for (const Taken& each : taken) layout.give_back(each.begin, each.bytes);
    EXPECT_EQ(1, layout.gaps()) << "seed " << seed;
    EXPECT_EQ(0, layout.take(capacity / 256 * 256)) << "seed " << seed;
    EXPECT_EQ(std::nullopt, layout.take(1)) << "seed " << seed;
  }
}

TEST(ArenaLayouts, HaveAnEnd) {
  ArenaLayout unlimited;
  EXPECT_EQ(0, unlimited.take(1));
  EXPECT_EQ(std::nullopt, unlimited.take(ArenaLayout::kUnlimited));
  EXPECT_EQ(std::nullopt, ArenaLayout(255).take(1));
  EXPECT_EQ(0, ArenaLayout(255).gaps());
}

TEST(PlanningMemory, EndsToo) {
  const auto device = planning::open();
  EXPECT_THAT(error_of([&] {
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
            error_of([] { cpu::open({.threads = 0}); }));
  EXPECT_EQ("planning device: threads is -1, expected at least 1",
            error_of([] { planning::open(-1); }));
}

}  // namespace
}  // namespace zero
