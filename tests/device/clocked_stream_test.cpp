// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "device/planning/clocked_stream.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

// Virtual time, by schedules that are worked out by hand.
namespace zero::planning {
namespace {

/// Work named "5" takes 5 seconds; copies take one second a byte.
class NamedTimes final : public WorkTimes {
 public:
  double seconds(Lane /*lane*/, std::string_view what, std::int64_t bytes) override {
    return bytes > 0 ? static_cast<double>(bytes) : std::stod(std::string(what));
  }
};

class ClockedDevice : public ::testing::Test {
 protected:
  void open(ClockOptions options) {
    options.times = &times_;
    device_ = planning::open(options, 1, MemorySpace::host, DeviceKind::cpu);
    begin_ = compute().mark();
  }
  Stream& compute() { return device_->compute(); }
  Stream& communication() { return device_->communication(); }
  /// Communication of `seconds`, in the first `working` of which it takes of compute's speed. It
  /// begins `late` seconds after the stream has reached it. Beside compute of a host thread the
  /// rest keeps half its rate.
  void communicate(double working, double seconds, double late = 0) {
    dynamic_cast<ClockedStream&>(communication()).run([=](double begin) {
      return Span{.begin = begin + late,
                  .end = begin + late + seconds,
                  .working = working,
                  .transfer_share = 0.5};
    });
  }
  double at(Stream& stream) { return stream.mark().seconds_since(begin_).value(); }

  NamedTimes times_;
  std::unique_ptr<Device> device_;
  Mark begin_;
};

TEST_F(ClockedDevice, CountsWhatComputeWaitsForAnotherStream) {
  open({});
  compute().submit("3", [] {});
  communication().wait(compute().record());
  communication().submit("5", [] {});
  const Event gathered = communication().record();
  compute().submit("2", [] {});
  EXPECT_EQ(at(compute()), 5);
  compute().wait(gathered);
  EXPECT_EQ(at(compute()), 8) << "the other stream began at 3 and took 5";
  EXPECT_EQ(compute().waited_seconds(), 3);
  compute().wait(gathered);
  EXPECT_EQ(compute().waited_seconds(), 3) << "it has been reached";
}

TEST_F(ClockedDevice, HidesWorkThatEndsBeforeItIsNeeded) {
  open({});
  communication().submit("4", [] {});
  const Event gathered = communication().record();
  compute().submit("6", [] {});
  compute().wait(gathered);
  EXPECT_EQ(compute().waited_seconds(), 0);
  EXPECT_EQ(at(compute()), 6);
}

TEST_F(ClockedDevice, OfAGpuSubmitsAheadOfItsStreams) {
  open({.submit_seconds = 1});
  compute().submit("5", [] {});  // the host is at 1, the stream at 5
  const Event first = compute().record();
  EXPECT_FALSE(first.complete());
  communication().submit("2", [] {});
  EXPECT_EQ(at(communication()), 3) << "from 1 on";
  first.synchronize();
  EXPECT_TRUE(first.complete());
  communication().submit("2", [] {});
  EXPECT_EQ(at(communication()), 7) << "the host has waited until 5";
}

TEST_F(ClockedDevice, IsHeldUpByAHostThatSubmitsTooSlowly) {
  open({.submit_seconds = 3});
  for (int i = 0; i < 4; ++i) compute().submit("1", [] {});
  EXPECT_EQ(at(compute()), 12) << "the last piece begins at 9 and the host submits until 12";
}

TEST_F(ClockedDevice, OfACpuComputesOnTheHostThread) {
  open({.inline_compute = true});
  compute().submit("5", [] {});
  communication().submit("1", [] {});
  EXPECT_EQ(at(communication()), 6) << "submitted when compute has run";
  communication().record().synchronize();
  compute().submit("1", [] {});
  EXPECT_EQ(at(compute()), 7);
}

TEST_F(ClockedDevice, SlowsComputeDownBesideCommunication) {
  open({.compute_share = 0.5});
  communication().submit("4", [] {});
  compute().submit("3", [] {});
  EXPECT_EQ(at(compute()), 5) << "2 of 3 until 4, then the last one";
  compute().submit("1", [] {});
  EXPECT_EQ(at(compute()), 6);
  communication().wait(compute().record());
  communication().submit("2", [] {});
  compute().submit("2", [] {});
  EXPECT_EQ(at(compute()), 9);
}

TEST_F(ClockedDevice, StopsComputeBesideCommunicationWithoutACoreForBoth) {
  open({.compute_share = 0});
  communication().submit("4", [] {});
  compute().submit("3", [] {});
  EXPECT_EQ(at(compute()), 7);
}

TEST_F(ClockedDevice, ComputesWhileCommunicationWaits) {
  open({.compute_share = 0});
  communicate(2, 9, 1);
  compute().submit("5", [] {});
  EXPECT_EQ(at(compute()), 7) << "1, then stopped until 3, then 4";
  EXPECT_EQ(at(communication()), 10);
}

/// A CPU whose core either computes or communicates.
constexpr ClockOptions kOneCore{.inline_compute = true, .compute_share = 0};

TEST_F(ClockedDevice, TransfersAtFullRateWhileComputeWaits) {
  open(kOneCore);
  communicate(2, 10);
  compute().wait(communication().record());
  EXPECT_EQ(at(compute()), 10);
  EXPECT_EQ(compute().waited_seconds(), 10);
}

TEST_F(ClockedDevice, TransfersAtAShareOfTheRateBesideCompute) {
  open(kOneCore);
  communicate(2, 10);
  const Event gathered = communication().record();
  compute().submit("4", [] {});
  EXPECT_EQ(at(compute()), 6) << "stopped until 2";
  EXPECT_EQ(at(communication()), 12) << "4 s of compute move 2 s' worth of 8";
  EXPECT_FALSE(gathered.complete());
  compute().wait(gathered);
  EXPECT_EQ(at(compute()), 12) << "an event recorded before has the time of the put-off transfer";
  EXPECT_EQ(compute().waited_seconds(), 6);
  EXPECT_TRUE(gathered.complete());
  compute().submit("1", [] {});
  compute().wait(gathered);
  EXPECT_EQ(compute().waited_seconds(), 6) << "what is over stays so";
}

TEST_F(ClockedDevice, ComputesOnWhereATransferEnds) {
  open(kOneCore);
  communicate(2, 10);
  const Event gathered = communication().record();
  compute().submit("15", [] {});
  EXPECT_FALSE(gathered.complete()) << "8 s' worth take 16 s";
  compute().submit("5", [] {});
  EXPECT_EQ(at(compute()), 22);
  EXPECT_TRUE(gathered.complete());
  compute().wait(gathered);
  EXPECT_EQ(compute().waited_seconds(), 0);
}

TEST_F(ClockedDevice, PutsOffWhatFollowsATransfer) {
  open(kOneCore);
  communicate(2, 10);
  communicate(1, 3);
  const Event both = communication().record();
  EXPECT_EQ(at(communication()), 13);
  compute().submit("4", [] {});
  EXPECT_EQ(at(communication()), 15);
  compute().submit("8", [] {});
  EXPECT_EQ(at(compute()), 14) << "12 s of compute, and 2 s in which the core communicated";
  compute().wait(both);
  EXPECT_EQ(at(compute()), 19) << "the first by 16, then 1 s of the core and 2 s of the wire";
}

TEST_F(ClockedDevice, ComputesBesideTransferAfterTransfer) {
  open(kOneCore);
  communicate(2, 10);
  communicate(1, 3);
  compute().submit("20", [] {});
  EXPECT_EQ(at(compute()), 23) << "stopped until 2, and from 18 to 19";
  EXPECT_EQ(at(communication()), 23) << "the second's 2 s' worth in the last 4 s";
}

TEST_F(ClockedDevice, PutsOffNoCommunicationThatWaitsForOtherRanks) {
  open(kOneCore);
  communicate(0, 4);
  communicate(0, 2, 3);  // from 7, when the others come
  compute().submit("2", [] {});
  EXPECT_EQ(at(communication()), 9) << "the first ends at 5 in place of 4";
  compute().submit("6", [] {});
  EXPECT_EQ(at(communication()), 10) << "and then at 8";
}

TEST_F(ClockedDevice, CountsTheBytesOfKernels) {
  open({});
  // Addresses that no work follows.
  const auto view = [&](std::uintptr_t address, DType dtype) {
    return View(reinterpret_cast<void*>(address), 8, dtype, device_.get());
  };
  const View from = view(0x1000, DType::fp32);
  const View to = view(0x2000, DType::bf16);
  device_->kernels().convert(compute(), from, to);
  EXPECT_EQ(at(compute()), 48);
  device_->kernels().tree_reduce(
      compute(), {to, to},
      {.addends = {from}, .destination = view(0x3000, DType::fp32), .norm = nullptr});
  EXPECT_EQ(at(compute()), 48 + 2 * 16 + 2 * 32);
  compute().submit_host("host code", [] {});
  EXPECT_EQ(at(compute()), 144);
}

TEST(PlanningDevice, WithoutAClockDropsWork) {
  const auto device = planning::open();
  device->compute().submit("work", [] { FAIL(); });
  EXPECT_TRUE(device->compute().record().complete());
  EXPECT_EQ(device->compute().waited_seconds(), 0);
}

}  // namespace
}  // namespace zero::planning
