// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory that the host does not see, and the two ways to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "device/device_mirror.h"
#include "device/host_access.h"
#include "tests/errors.h"
#include "tests/support/test_device.h"

namespace zero {
namespace {

std::unique_ptr<Device> open(MemorySpace memory) { return testing::open({.memory = memory}); }

Buffer take(Device& device, std::int64_t count, DType dtype = DType::fp32) {
  return device.allocate(count, dtype, MemoryClass::other, "values");
}

TEST(MemoryApart, IsOpenWhileSubmittedWorkRunsAndClosedOtherwise) {
  const auto device = open(MemorySpace::device);
  const Buffer buffer = take(*device, 5);
  const auto write = [values = buffer.view()] { values.as<float>()[4] = 1.0F; };
  EXPECT_DEATH(write(), "");
  EXPECT_DEATH(
      {
        device->compute().submit_host("write", write);
        device->compute().synchronize();
      },
      "");
  device->compute().submit("write", write);
  device->compute().synchronize();
  EXPECT_DEATH(write(), "");
  const Buffer host = device->allocate_host(5, DType::fp32, MemoryClass::other, "of the host");
  EXPECT_EQ(host.view().device(), nullptr);
  device->kernels().convert(device->compute(), buffer.view(), host.view());
  device->compute().synchronize();
  EXPECT_EQ(host.view().as<float>()[4], 1.0F);
}

TEST(DeviceMirror, TakesMemoryAndCopiesOnlyWhereItIsApart) {
  for (const MemorySpace memory : {MemorySpace::host, MemorySpace::device}) {
    const auto device = open(memory);
    const DeviceMirror mirror(*device, 4, DType::i64, MemoryClass::staging, "mirror");
    const bool apart = memory == MemorySpace::device;
    EXPECT_EQ(device->ledger().snapshot().current_of(MemoryClass::staging), apart ? 32 : 0);
    std::vector<std::int64_t> values{1, 2, 3};
    const View host = View::of(std::span(values));
    const View there = mirror.upload(device->compute(), host);
    EXPECT_EQ(there.data() == host.data(), !apart);
    device->compute().submit("double", [there] {
      for (std::int64_t& value : there.as<std::int64_t>()) value *= 2;
    });
    mirror.download(device->compute(), host);
    device->compute().synchronize();
    EXPECT_EQ(values, (std::vector<std::int64_t>{2, 4, 6}));
    EXPECT_EQ(error_of([&] { static_cast<void>(mirror.of(host.reinterpret(DType::i32, 3))); }),
              "a device's mirror of 4 i64 cannot stand for 3 i32 of the host");
  }
}

TEST(HostAccess, BringsAllOfAViewInOrderAndBack) {
  for (const MemorySpace memory : {MemorySpace::host, MemorySpace::device}) {
    for (const std::int64_t count : {0, 1, 1000, 3 * (1 << 18) + 7}) {
      const auto device = open(memory);
      HostAccess host_access(*device);
      const Buffer buffer = take(*device, count);
      std::int64_t wrote = 0;
      host_access.write(buffer.view(), [&](std::int64_t begin, const View& piece) {
        EXPECT_EQ(begin, wrote);
        wrote += piece.count();
        std::iota(piece.as<float>().begin(), piece.as<float>().end(), static_cast<float>(begin));
      });
      EXPECT_EQ(wrote, count);
      std::vector<float> seen;
      host_access.read(buffer.view(), [&](std::int64_t begin, const View& piece) {
        EXPECT_EQ(begin, static_cast<std::int64_t>(seen.size()));
        EXPECT_EQ(begin % 64, 0);
        seen.insert(seen.end(), piece.as<float>().begin(), piece.as<float>().end());
      });
      std::vector<float> expected(static_cast<std::size_t>(count));
      std::iota(expected.begin(), expected.end(), 0.0F);
      EXPECT_EQ(seen, expected) << count;
    }
  }
}

TEST(HostAccess, IsPlannedWhereMemoryIsApart) {
  const auto staging = [](Device& device) {
    const HostAccess host_access(device);
    return device.ledger().snapshot().current_of(MemoryClass::staging);
  };
  EXPECT_EQ(staging(*planning::open()), 0);
  EXPECT_EQ(staging(*planning::open(1, MemorySpace::device)), 2 << 20);
  EXPECT_EQ(staging(*open(MemorySpace::device)), 2 << 20);
}

}  // namespace
}  // namespace zero
