// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// What work on streams takes of the host, in calls of the runtime that the emulated GPU counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/checked_math.h"
#include "engine/coded_moments.h"
#include "tests/cuda/case.h"

namespace zero::cuda {
namespace {

class HostCalls : public EmulatedDevice {};

TEST_F(HostCalls, NormsThatMayStayTakeOneCopyToTheHost) {
  const auto values = normal(3000, DType::fp32);
  const View there = upload(values->view);
  Kernels& kernels = device_->kernels();
  Stream& compute = device_->compute();
  const auto host_functions = [] { return emulated::calls("cudaLaunchHostFunc"); };
  const auto reduce = [&](const std::shared_ptr<ExactSum>& norm, std::int64_t begin) {
    const View part = there.slice(begin, 1000);
    kernels.tree_reduce(compute, {part}, {{}, part, norm});
  };
  const auto expected = std::make_shared<ExactSum>();
  for (const std::int64_t begin : {0, 1000, 2000}) reduce(expected, begin);
  EXPECT_EQ(host_functions(), 3);
  const auto norm = std::make_shared<ExactSum>();
  kernels.defer_norm(norm);
  for (const int step : {1, 2}) {
    for (const std::int64_t begin : {0, 1000, 2000}) reduce(norm, begin);
    EXPECT_EQ(host_functions(), 2 + step);
    kernels.flush_norms(compute);
    kernels.flush_norms(compute);  // nothing is left
    kernels.flush_norms(device_->communication());
    EXPECT_EQ(host_functions(), 3 + step);
    compute.synchronize();
    EXPECT_EQ(norm->value(), expected->value());
    norm->clear();
  }
  // Another norm between them.
  const auto other = std::make_shared<ExactSum>();
  reduce(norm, 0);
  reduce(other, 1000);
  reduce(norm, 2000);
  reduce(norm, 1000);
  kernels.flush_norms(compute);
  compute.synchronize();
  EXPECT_EQ(norm->value(), expected->value());
  EXPECT_GT(other->value(), 0);
}

// A save goes on beside the steps: the thread that trains must not wait for its stream.
TEST(CudaCodedMoments, AreCopiedToPinnedMemoryWithoutBlocking) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 18) + 700;  // two pieces
  constexpr std::int64_t kPhase = 70;
  emulated::reset();
  {
    const auto device = open();
    const auto optimizer = make_optimizer({.moments = MomentFormat::eight_bit}, *device);
    StateHome file(*device, {});
    StateAccess access(*device, file);
    CodedMoments coded(*device, access, *optimizer);
    const auto take = [&](std::int64_t count, DType dtype) {
      return device->allocate(count, dtype, MemoryClass::optimizer, "moment");
    };
    const Buffer codes = take(kCount, DType::u8);
    const Buffer scales = take(div_ceil(kPhase + kCount, kMomentBlock), DType::fp32);
    access.write(codes.view(), [](std::int64_t begin, const View& piece) {
      for (std::uint8_t& code : piece.as<std::uint8_t>())
        code = static_cast<std::uint8_t>(begin++ * 37);
    });
    access.write(scales.view(), [](std::int64_t begin, const View& piece) {
      for (float& scale : piece.as<float>()) scale = 1.0F + 0.01F * static_cast<float>(begin++);
    });
    const CodedMoment moment{1, codes.view(), scales.view(), kPhase};
    const Buffer copies =
        device->allocate_host(2 * kCount, DType::fp32, MemoryClass::staging, "copies");
    const std::int64_t waits = emulated::synchronizations();
    coded.copy(moment, copies.slice(0, kCount), device->transfer());
    coded.copy(moment, copies.slice(kCount, kCount), device->compute());
    EXPECT_EQ(waits, emulated::synchronizations());
    device->compute().synchronize();
    const std::span<const float> found = copies.view().as<const float>();
    coded.read(moment, [&](std::int64_t begin, const View& values) {
      for (const std::size_t copy : {0, 1}) {
        const auto at = copy * kCount + static_cast<std::size_t>(begin);
        ASSERT_TRUE(std::ranges::equal(values.as<const float>(),
                                       found.subspan(at, static_cast<std::size_t>(values.count()))))
            << copy << " from " << begin;
      }
    });
    device->transfer().synchronize();
  }
  emulated::reset();
}

}  // namespace
}  // namespace zero::cuda
