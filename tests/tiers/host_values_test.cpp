// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>

#include "tests/support/test_device.h"
#include "tiers/tier_host.h"

namespace zero::testing {
namespace {

using ::testing::Each;

TEST(TierHost, HoldsZerosUntilTheyAreWrittenAndGivesThemBack) {
  const auto device = open({.memory = MemorySpace::device});
  {
    TierHost host(*device);
    const View first = host.reserve(1000, DType::fp32, MemoryClass::optimizer, "first");
    const View second = host.reserve(500, DType::u8, MemoryClass::optimizer, "second");
    EXPECT_EQ(first.device(), nullptr);
    EXPECT_THAT(first.as<float>(), Each(0.0F));
    EXPECT_EQ(host.bytes(), 4500);
    EXPECT_EQ(device->ledger().snapshot().current_of(MemoryClass::optimizer), 4500);
    EXPECT_EQ(device->host_bytes(), 4500);

    const Buffer window = device->allocate(100, DType::fp32, MemoryClass::staging, "window");
    device->kernels().generate(device->compute(), window.view(),
                               [](std::int64_t begin, std::span<float> out) {
                                 for (float& value : out) value = static_cast<float>(begin++);
                               });
    device->transfer().wait(device->compute().record());
    host.write(window.view(), first.slice(200, 100));
    host.moved().synchronize();
    EXPECT_EQ(first.as<float>()[199], 0);
    EXPECT_EQ(first.as<float>()[299], 99);
    const Buffer other = device->allocate(100, DType::fp32, MemoryClass::staging, "other");
    host.read(first.slice(250, 100), other.view());
    host.write(other.view(), first.slice(0, 100));  // behind the read
    host.moved().synchronize();
    EXPECT_EQ(first.as<float>()[0], 50);
    EXPECT_EQ(first.as<float>()[49], 99);
    EXPECT_EQ(first.as<float>()[50], 0);
    EXPECT_THAT(second.as<std::uint8_t>(), Each(0));
  }
  EXPECT_EQ(device->ledger().snapshot().current_of(MemoryClass::optimizer), 0);
}

TEST(TierHost, KnowsItsValuesFromOthers) {
  const auto device = open({.memory = MemorySpace::device});
  TierHost host(*device);
  EXPECT_FALSE(host.holds(View()));
  const View values = host.reserve(100, DType::bf16, MemoryClass::optimizer, "values");
  EXPECT_TRUE(host.holds(values));
  EXPECT_TRUE(host.holds(values.slice(99, 1)));
  EXPECT_FALSE(host.holds(values.slice(99, 0)));
  EXPECT_TRUE(host.reserve(0, DType::fp32, MemoryClass::optimizer, "none").empty());
  const Buffer other = device->allocate_host(100, DType::bf16, MemoryClass::staging, "other");
  const Buffer own = device->allocate(100, DType::bf16, MemoryClass::staging, "own");
  EXPECT_FALSE(host.holds(other.view()));
  EXPECT_FALSE(host.holds(own.view()));
}

TEST(TierHost, IsChargedOnAPlanningDevice) {
  const auto device = planning::open(1, MemorySpace::device);
  TierHost host(*device);
  const View values = host.reserve(100, DType::bf16, MemoryClass::optimizer, "values");
  EXPECT_TRUE(host.holds(values));
  EXPECT_EQ(device->ledger().snapshot().current_of(MemoryClass::optimizer), 200);
  EXPECT_EQ(device->host_bytes(), 200);
}

}  // namespace
}  // namespace zero::testing
