// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "tests/errors.h"

namespace zero {
namespace {

/// An event that the test completes.
class Gate final : public Event::State {
 public:
  bool complete() override {
    const std::lock_guard lock(mutex_);
    return open_;
  }
  void synchronize() override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void until_someone_waits() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>()> open;
};

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
  return cases;
}

class Streams : public ::testing::TestWithParam<DeviceCase> {
 protected:
  std::unique_ptr<Device> device_ = GetParam().open();
  Stream& compute_ = device_->compute();
  Stream& communication_ = device_->communication();
};

INSTANTIATE_TEST_SUITE_P(OnEachDevice, Streams, ::testing::ValuesIn(devices()),
                         [](const auto& each) { return each.param.name; });

TEST_P(Streams, RunTheirWorkInOrder) {
  for (Stream* stream : {&compute_, &communication_}) {
    std::vector<int> order;
    for (int i = 0; i < 50; ++i) stream->submit("note", [&order, i] { order.push_back(i); });
    stream->synchronize();
    for (int i = 0; i < 50; ++i) EXPECT_EQ(i, order.at(static_cast<std::size_t>(i)));
  }
}

TEST_P(Streams, AWaitOrdersTwoStreams) {
  int value = 0;
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) {
    communication_.submit("produce", [&value, i] { value = i; });
    compute_.wait(communication_.record());
    compute_.submit("consume", [&] { seen.push_back(value); });
    communication_.wait(compute_.record());
  }
  compute_.synchronize();
  ASSERT_EQ(100U, seen.size());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(i, seen[static_cast<std::size_t>(i)]);
}

TEST_P(Streams, AnEventIsItsPointAndNoLater) {
  int value = 0;
  communication_.submit("one", [&] { value = 1; });
  const Event point = communication_.record();
  point.synchronize();
  EXPECT_TRUE(point.complete());
  EXPECT_EQ(1, value);
  communication_.submit("two", [&] { value = 2; });
  EXPECT_TRUE(point.complete());
  communication_.synchronize();
  EXPECT_EQ(2, value);
}

TEST_P(Streams, AFreshStreamAndADefaultEventAreComplete) {
  EXPECT_TRUE(communication_.record().complete());
  EXPECT_TRUE(Event().complete());
  Event().synchronize();
  compute_.wait(Event());
  compute_.synchronize();
}

TEST_P(Streams, AWaitForTheirOwnEventPasses) {
  int value = 0;
  for (Stream* stream : {&compute_, &communication_}) {
    stream->submit("add", [&] { ++value; });
    stream->wait(stream->record());
    stream->submit("add", [&] { ++value; });
    stream->synchronize();
  }
  EXPECT_EQ(4, value);
}

TEST_P(Streams, AnErrorFailsTheStreamAndDropsLaterWork) {
  bool ran = false;
  const Event before = communication_.record();
  const std::string first = message_of([&] {
    communication_.submit("bad", [] { fail("the first error"); });
    communication_.submit("dropped", [&] { ran = true; });
    communication_.synchronize();
  });
  EXPECT_EQ("the first error", first);
  EXPECT_FALSE(ran);
  EXPECT_EQ("the first error", message_of([&] { communication_.submit("more", [] {}); }));
  EXPECT_EQ("the first error", message_of([&] { communication_.wait(Event()); }));
  EXPECT_EQ("the first error", message_of([&] { communication_.synchronize(); }));
  EXPECT_EQ("the first error", message_of([&] { communication_.record().synchronize(); }));
  EXPECT_EQ("no error", message_of([&] { before.synchronize(); }));
  EXPECT_EQ("no error", message_of([&] { compute_.synchronize(); }));
}

TEST_P(Streams, AnErrorReachesTheStreamsThatWaitForIt) {
  bool ran = false;
  const std::string found = message_of([&] {
    communication_.submit("bad", [] { fail("lost rank 3"); });
    const Event point = communication_.record();
    compute_.wait(point);
    compute_.submit("dropped", [&] { ran = true; });
    compute_.synchronize();
  });
  EXPECT_EQ("lost rank 3", found);
  EXPECT_FALSE(ran);
  EXPECT_EQ("lost rank 3", message_of([&] { compute_.submit("more", [] {}); }));
}

TEST_P(Streams, AnErrorOfComputeReachesCommunication) {
  const std::string thrown = message_of([&] {
    compute_.submit("bad", [] { fail("bad layer"); });
    compute_.synchronize();
  });
  EXPECT_EQ("bad layer", thrown);
  const std::string found = message_of([&] {
    communication_.wait(compute_.record());
    communication_.synchronize();
  });
  EXPECT_EQ("bad layer", found);
}

TEST_P(Streams, AForeignErrorNamesItsWork) {
  const std::string found = message_of([&] {
    communication_.submit("pack h.0", [] { throw std::runtime_error("no space"); });
    communication_.synchronize();
  });
  EXPECT_EQ("pack h.0: no space", found);
}

TEST_P(Streams, DestroyWorkWhenItHasRun) {
  const auto held = std::make_shared<int>(1);
  communication_.submit("hold", [held] {});
  communication_.synchronize();
  EXPECT_EQ(1, held.use_count());
}

TEST_P(Streams, WaitForEventsOfOtherDevicesToo) {
  const auto gate = std::make_shared<Gate>();
  gate->open();
  int value = 0;
  communication_.wait(Event(gate));
  communication_.submit("set", [&] { value = 1; });
  communication_.synchronize();
  EXPECT_EQ(1, value);
}

TEST(CpuStreams, ComputeRunsInsideSubmitOnTheCaller) {
  const auto device = cpu::open();
  std::thread::id where;
  device->compute().submit("where", [&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(std::this_thread::get_id(), where);
}

TEST(CpuStreams, CommunicationRunsElsewhereAndTheHostGoesOn) {
  const auto device = cpu::open();
  const auto gate = std::make_shared<Gate>();
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

TEST(CpuStreams, CountOnlyRealWaits) {
  const auto device = cpu::open();
  Stream& communication = device->communication();
  communication.submit("nothing", [] {});
  communication.synchronize();
  device->compute().wait(communication.record());
  device->compute().submit("nothing", [] {});
  EXPECT_EQ(0.0, device->compute().waited_seconds());

  const auto gate = std::make_shared<Gate>();
  communication.wait(Event(gate));
  const Event held = communication.record();
  std::thread opener([&] {
    gate->until_someone_waits();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate->open();
  });
  device->compute().wait(held);
  opener.join();
  const double waited = device->compute().waited_seconds();
  EXPECT_GT(waited, 0.0);
  device->compute().wait(held);
  EXPECT_EQ(waited, device->compute().waited_seconds());
  EXPECT_GE(communication.waited_seconds(), 0.005);
}

TEST(CpuStreams, RunWhatWasSubmittedBeforeTheyEnd) {
  std::atomic<int> ran = 0;
  {
    const auto device = cpu::open();
    for (int i = 0; i < 100; ++i) device->communication().submit("count", [&] { ++ran; });
  }
  EXPECT_EQ(100, ran);
}

TEST(CpuStreams, EndQuietlyAfterAnErrorNobodySaw) {
  const auto device = cpu::open();
  device->communication().submit("bad", [] { fail("unseen"); });
}

TEST(PlanningStreams, DropWorkAndAreAlwaysComplete) {
  const auto device = planning::open();
  for (Stream* stream : {&device->compute(), &device->communication()}) {
    stream->submit("never", [] { FAIL() << "ran"; });
    stream->wait(Event(std::make_shared<Gate>()));
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
