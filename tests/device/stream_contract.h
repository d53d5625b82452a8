// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/device.h"
#include "tests/errors.h"

/// What the streams of every device do, with host code as the work. Included by one source of a
/// program, which instantiates Streams with its devices.
namespace zero {

/// An event that the test completes.
class HeldEvent final : public Event::State {
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
  Stream& (Device::*other)() = &Device::communication;  ///< the stream beside compute
};

/// Each case once more, with the transfer stream beside compute.
inline std::vector<DeviceCase> with_transfers(std::vector<DeviceCase> cases) {
  for (std::size_t i = 0, count = cases.size(); i < count; ++i) {
    cases.push_back({cases[i].name + "_transfer", cases[i].open, &Device::transfer});
  }
  return cases;
}

class Streams : public ::testing::TestWithParam<DeviceCase> {
 protected:
  std::unique_ptr<Device> device_ = GetParam().open();
  Stream& compute_ = device_->compute();
  Stream& other_ = ((*device_).*GetParam().other)();
};

TEST_P(Streams, RunTheirWorkInOrder) {
  for (Stream* stream : {&compute_, &other_}) {
    std::vector<int> order;
    for (int i = 0; i < 50; ++i) stream->submit_host("note", [&order, i] { order.push_back(i); });
    stream->synchronize();
    for (int i = 0; i < 50; ++i) EXPECT_EQ(i, order.at(static_cast<std::size_t>(i)));
  }
}

TEST_P(Streams, MarksTellWhatLiesBetweenThem) {
  using Clock = std::chrono::steady_clock;
  const Mark begin = other_.mark();
  other_.submit_host("work", [] {
    for (const auto start = Clock::now(); Clock::now() - start < std::chrono::microseconds(20);) {
    }
  });
  const Mark end = other_.mark();
  compute_.wait(other_.record());
  const Mark behind = compute_.mark();
  compute_.synchronize();
  other_.synchronize();
  EXPECT_GT(end.seconds_since(begin).value(), 1e-5);
  EXPECT_GE(behind.seconds_since(end).value(), 0);
  EXPECT_GE(behind.seconds_since(begin).value(), end.seconds_since(begin).value());
  EXPECT_FALSE(behind.seconds_since(Mark()));
  EXPECT_FALSE(Mark().seconds_since(begin));
}

TEST_P(Streams, AWaitOrdersTwoStreams) {
  int value = 0;
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) {
    other_.submit_host("produce", [&value, i] { value = i; });
    compute_.wait(other_.record());
    compute_.submit_host("consume", [&] { seen.push_back(value); });
    other_.wait(compute_.record());
  }
  compute_.synchronize();
  ASSERT_EQ(100U, seen.size());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(i, seen[static_cast<std::size_t>(i)]);
}

TEST_P(Streams, AnEventIsItsPointAndNoLater) {
  int value = 0;
  other_.submit_host("one", [&] { value = 1; });
  const Event point = other_.record();
  point.synchronize();
  EXPECT_TRUE(point.complete());
  EXPECT_EQ(1, value);
  other_.submit_host("two", [&] { value = 2; });
  EXPECT_TRUE(point.complete());
  other_.synchronize();
  EXPECT_EQ(2, value);
}

TEST_P(Streams, AFreshStreamAndADefaultEventAreComplete) {
  EXPECT_TRUE(other_.record().complete());
  EXPECT_TRUE(Event().complete());
  Event().synchronize();
  compute_.wait(Event());
  compute_.synchronize();
}

TEST_P(Streams, AWaitForTheirOwnEventPasses) {
  int value = 0;
  for (Stream* stream : {&compute_, &other_}) {
    stream->submit_host("add", [&] { ++value; });
    stream->wait(stream->record());
    stream->submit_host("add", [&] { ++value; });
    stream->synchronize();
  }
  EXPECT_EQ(4, value);
}

TEST_P(Streams, AnErrorFailsTheStreamAndDropsLaterWork) {
  bool ran = false;
  const Event before = other_.record();
  const std::string first = error_of([&] {
    other_.submit_host("bad", [] { fail("the first error"); });
    other_.submit_host("dropped", [&] { ran = true; });
    other_.synchronize();
  });
  EXPECT_EQ("the first error", first);
  EXPECT_FALSE(ran);
  EXPECT_EQ("the first error", error_of([&] { other_.submit_host("more", [] {}); }));
  EXPECT_EQ("the first error", error_of([&] { other_.wait(Event()); }));
  EXPECT_EQ("the first error", error_of([&] { other_.synchronize(); }));
  EXPECT_EQ("the first error", error_of([&] { other_.record().synchronize(); }));
  EXPECT_EQ("no error", error_of([&] { before.synchronize(); }));
  EXPECT_EQ("no error", error_of([&] { compute_.synchronize(); }));
}

TEST_P(Streams, AnErrorReachesTheStreamsThatWaitForIt) {
  bool ran = false;
  const std::string found = error_of([&] {
    other_.submit_host("bad", [] { fail("lost rank 3"); });
    const Event point = other_.record();
    compute_.wait(point);
    compute_.submit_host("dropped", [&] { ran = true; });
    compute_.synchronize();
  });
  EXPECT_EQ("lost rank 3", found);
  EXPECT_FALSE(ran);
  EXPECT_EQ("lost rank 3", error_of([&] { compute_.submit_host("more", [] {}); }));
}

TEST_P(Streams, AnErrorOfComputeReachesTheStreamThatWaitsForIt) {
  const std::string thrown = error_of([&] {
    compute_.submit_host("bad", [] { fail("bad layer"); });
    compute_.synchronize();
  });
  EXPECT_EQ("bad layer", thrown);
  const std::string found = error_of([&] {
    other_.wait(compute_.record());
    other_.synchronize();
  });
  EXPECT_EQ("bad layer", found);
}

TEST_P(Streams, AForeignErrorNamesItsWork) {
  const std::string found = error_of([&] {
    other_.submit_host("pack h.0", [] { throw std::runtime_error("no space"); });
    other_.synchronize();
  });
  EXPECT_EQ("pack h.0: no space", found);
}

TEST_P(Streams, DestroyWorkWhenItHasRun) {
  const auto held = std::make_shared<int>(1);
  other_.submit_host("hold", [held] {});
  other_.synchronize();
  EXPECT_EQ(1, held.use_count());
}

TEST_P(Streams, WaitForEventsOfOtherDevicesToo) {
  const auto gate = std::make_shared<HeldEvent>();
  gate->open();
  int value = 0;
  other_.wait(Event(gate));
  other_.submit_host("set", [&] { value = 1; });
  other_.synchronize();
  EXPECT_EQ(1, value);
}

}  // namespace zero
