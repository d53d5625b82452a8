// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "tests/device/stream_contract.h"
#include "tests/support/test_device.h"

namespace zero {
namespace {

std::vector<DeviceCase> devices() {
  using testing::StreamOrder;
  std::vector<DeviceCase> cases{
      {"cpu", [] { return cpu::open(); }},
      {"lazy", [] { return testing::open({.policy = StreamOrder::Policy::lazy}); }}};
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    cases.push_back({"seeded" + std::to_string(seed), [seed] {
                       return testing::open({.policy = StreamOrder::Policy::seeded, .seed = seed});
                     }});
  }
  return with_transfers(cases);
}

INSTANTIATE_TEST_SUITE_P(OnEachDevice, Streams, ::testing::ValuesIn(devices()),
                         [](const auto& each) { return each.param.name; });

TEST(CpuStreams, ComputeRunsInsideSubmitOnTheCaller) {
  const auto device = cpu::open();
  std::thread::id where;
  device->compute().submit("where", [&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(std::this_thread::get_id(), where);
}

TEST(CpuStreams, CommunicationRunsElsewhereAndTheHostGoesOn) {
  const auto device = cpu::open();
  const auto gate = std::make_shared<HeldEvent>();
  std::thread::id where;
  device->communication().wait(Event(gate));  // does not block the host
  device->communication().submit("where", [&] { where = std::this_thread::get_id(); });
  const Event done = device->communication().record();
  gate->until_someone_waits();
  EXPECT_FALSE(done.complete());
  gate->open();
  done.synchronize();
  EXPECT_NE(std::this_thread::get_id(), where);
  EXPECT_NE(std::thread::id(), where);
}

TEST(CpuStreams, TransfersRunBesideComputeAndCommunication) {
  const auto device = cpu::open();
  const auto disk = std::make_shared<HeldEvent>();
  std::thread::id where;
  device->transfer().wait(Event(disk));
  device->transfer().submit_host("where", [&] { where = std::this_thread::get_id(); });
  const Event done = device->transfer().record();
  disk->until_someone_waits();
  int ran = 0;  // while the transfer stream is blocked
  device->compute().submit("compute", [&] { ++ran; });
  device->communication().wait(device->compute().record());
  device->communication().submit("communicate", [&] { ++ran; });
  device->communication().synchronize();
  EXPECT_EQ(2, ran);
  EXPECT_FALSE(done.complete());
  disk->open();
  device->compute().wait(done);
  EXPECT_NE(std::this_thread::get_id(), where);
  EXPECT_NE(std::thread::id(), where);
  EXPECT_GT(device->transfer().waited_seconds(), 0.0);
}

TEST(CpuStreams, TransfersAreOneStreamMadeAtItsFirstUse) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  const auto device = cpu::open();
  const auto before = threads();
  Stream* const transfer = &device->transfer();
  EXPECT_EQ(before + 1, threads());
  EXPECT_EQ(transfer, &device->transfer());
  EXPECT_EQ(before + 1, threads());
}

TEST(CpuStreams, AMarkAheadIsNotYetKnown) {
  const auto device = cpu::open();
  const auto gate = std::make_shared<HeldEvent>();
  const Mark begin = device->compute().mark();
  device->communication().wait(Event(gate));
  const Mark end = device->communication().mark();
  EXPECT_FALSE(end.seconds_since(begin));
  EXPECT_FALSE(begin.seconds_since(end));
  gate->open();
  device->communication().synchronize();
  EXPECT_GT(end.seconds_since(begin).value(), 0);
  const auto plan = planning::open();
  const Mark never = plan->compute().mark();
  plan->compute().synchronize();
  EXPECT_FALSE(never.seconds_since(begin));
}

TEST(CpuStreams, CountOnlyRealWaits) {
  const auto device = cpu::open();
  Stream& communication = device->communication();
  communication.submit("nothing", [] {});
  communication.synchronize();
  device->compute().wait(communication.record());
  device->compute().submit("nothing", [] {});
  EXPECT_EQ(0.0, device->compute().waited_seconds());

  const auto gate = std::make_shared<HeldEvent>();
  communication.wait(Event(gate));
  const Event held = communication.record();
  std::thread opener([&] {
    gate->until_someone_waits();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate->open();
  });
  const WaitMeter meter;
  device->compute().wait(held, meter);
  opener.join();
  const double waited = device->compute().waited_seconds();
  EXPECT_GT(waited, 0.0);
  EXPECT_EQ(waited, meter.seconds());
  device->compute().wait(held);
  EXPECT_EQ(waited, device->compute().waited_seconds());
  EXPECT_GE(communication.waited_seconds(), 0.005);
}

TEST(CpuStreams, RunWhatWasSubmittedBeforeTheyEnd) {
  std::atomic<int> ran = 0;
  {
    const auto device = cpu::open();
    for (int i = 0; i < 100; ++i) device->communication().submit("count", [&] { ++ran; });
    device->transfer().wait(device->communication().record());
    for (int i = 0; i < 100; ++i) device->transfer().submit("count", [&] { ++ran; });
    device->communication().wait(device->transfer().record());
    for (int i = 0; i < 100; ++i) device->communication().submit("count", [&] { ++ran; });
  }
  EXPECT_EQ(300, ran);
}

TEST(CpuStreams, EndQuietlyAfterAnErrorNobodySaw) {
  const auto device = cpu::open();
  device->communication().submit("bad", [] { fail("unseen"); });
  device->transfer().submit("bad", [] { fail("unseen"); });
}

TEST(PlanningStreams, DropWorkAndAreAlwaysComplete) {
  const auto device = planning::open();
  for (Stream* stream : {&device->compute(), &device->communication(), &device->transfer()}) {
    stream->submit("never", [] { FAIL() << "ran"; });
    stream->wait(Event(std::make_shared<HeldEvent>()));
    EXPECT_TRUE(stream->record().complete());
    stream->synchronize();
    EXPECT_EQ(0.0, stream->waited_seconds());
  }
  const Buffer buffer = device->allocate(100, DType::fp32, MemoryClass::other, "x");
  device->kernels().zero(device->compute(), buffer.view());  // must not touch the address
  device->kernels().tree_reduce(device->compute(), {buffer.view()},
                                {.addends = {}, .destination = buffer.view(), .norm = nullptr});
}

}  // namespace
}  // namespace zero
