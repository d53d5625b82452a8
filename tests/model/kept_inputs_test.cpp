// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/kept_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tests/model/recompute_plans.h"
#include "tests/support/test_device.h"

// Kept inputs on their way to host memory and back, on streams that find a wait that is missing.
namespace zero::testing {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> numbers(const RecomputePlan& plan) {
  const InputWindows windows(plan, kBlocks);
  std::vector<std::int64_t> found;
  for (std::int64_t i = 0; i < kBlocks; ++i) found.push_back(windows.number(i));
  return found;
}

TEST(InputWindows, AreOfInputsThatAreKeptAloneIfTheyAreMoreThanWindows) {
  EXPECT_THAT(numbers(on_host(RecomputePlan::full(kBlocks))), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(numbers(on_host(RecomputePlan::full(kBlocks, 2))), ElementsAre(0, -1, 1, -1, 2));
  EXPECT_THAT(numbers(on_host(RecomputePlan::grouped(kBlocks, 3))), ElementsAre(0, -1, 1, -1, 2));
  for (const RecomputePlan& none :
       {RecomputePlan::full(kBlocks), on_host({}), on_host(RecomputePlan::grouped(kBlocks, 2)),
        on_host(RecomputePlan::selective(kBlocks, {BlockTensor::hidden}))}) {
    EXPECT_THAT(numbers(none), ElementsAre(-1, -1, -1, -1, -1));
    EXPECT_EQ(InputWindows(none, kBlocks).windows(), 0);
  }
  const InputWindows windows(on_host(RecomputePlan::full(kBlocks)), kBlocks);
  EXPECT_EQ(windows.windows(), 2);
  EXPECT_EQ(windows.on_host(), kBlocks - 2);
  EXPECT_EQ(windows.window(3), 1);
}

TEST(InputWindows, AreOfDevicesWithMemoryOfTheirOwn) {
  const RecomputePlan plan = on_host(RecomputePlan::full(kBlocks));
  EXPECT_FALSE(plan.on(*planning::open()).inputs_on_host);
  EXPECT_TRUE(plan.on(*planning::open_gpu_memory()).inputs_on_host);
}

TEST(InputWindows, TakeTheMemoryOfTwoInputsWhereAllWereKept) {
  const auto bytes = [](const RecomputePlan& plan, DType dtype) {
    const DecoderShape model = gpt2_of_blocks();
    const DecoderRows rows{
        .all = 512, .own = 512, .sequence = 512, .logits = 8, .logit_columns = 64};
    return DecoderMemory(model, rows, dtype, plan).bytes();
  };
  const RecomputePlan plan = RecomputePlan::full(kBlocks);
  const std::int64_t input = 512 * gpt2_of_blocks().width * size_of(DType::bf16);
  const std::int64_t saved = bytes(plan, DType::bf16) - bytes(on_host(plan), DType::bf16);
  EXPECT_LE(saved, (kBlocks - 2) * input);
  EXPECT_GE(saved, (kBlocks - 4) * input);  // at the peak others may be dead anyway
}

/// A call that leaves one of the waits out.
enum class LeftOut { none, before_write, before_use };

/// What micro-batches that write a value of their own into each input read of it in backward.
std::vector<float> read_again(const StreamOrder& order, LeftOut left_out) {
  constexpr std::int64_t kCount = 64;
  constexpr int kMicroBatches = 2;
  const auto device = open(order);
  Stream& compute = device->compute();
  const InputWindows windows(on_host(RecomputePlan::full(kBlocks)).on(*device), kBlocks);
  const Buffer memory =
      device->allocate(windows.windows() * kCount, DType::fp32, MemoryClass::activations, "x");
  const Buffer values =
      device->allocate_host(kBlocks * kMicroBatches, DType::fp32, MemoryClass::staging, "values");
  const Buffer seen =
      device->allocate_host(kBlocks * kMicroBatches, DType::fp32, MemoryClass::staging, "seen");
  KeptInputs inputs(*device, windows);
  inputs.allocate(kCount, DType::fp32);
  const auto window = [&](std::int64_t i) {
    return memory.slice(windows.window(i) * kCount, kCount);
  };
  for (int batch = 0; batch < kMicroBatches; ++batch) {
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const std::int64_t at = batch * kBlocks + i;
      values.view().as<float>()[static_cast<std::size_t>(at)] = static_cast<float>(at + 1);
      if (left_out != LeftOut::before_write) inputs.before_write(i);
      device->kernels().zero(compute, window(i));
      device->kernels().convert(compute, values.slice(at, 1), window(i).slice(kCount - 1, 1));
      inputs.leave(i, window(i));
    }
    for (std::int64_t i = kBlocks - 1; i >= 0; --i) {
      if (left_out != LeftOut::before_use) inputs.before_use(i);
      device->kernels().convert(compute, window(i).slice(kCount - 1, 1),
                                seen.slice(batch * kBlocks + i, 1));
      inputs.used(i, window(i));
    }
  }
  compute.synchronize();
  const auto found = seen.view().as<float>();
  return {found.begin(), found.end()};
}

bool noticed(LeftOut left_out) {
  std::vector<StreamOrder> orders{
      {.policy = StreamOrder::Policy::lazy, .memory = MemorySpace::device}};
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    orders.push_back(
        {.policy = StreamOrder::Policy::seeded, .seed = seed, .memory = MemorySpace::device});
  }
  return std::ranges::any_of(orders, [&](const StreamOrder& order) {
    const std::vector<float> found = read_again(order, left_out);
    for (std::size_t at = 0; at < found.size(); ++at) {
      if (found[at] != static_cast<float>(at + 1)) return true;
    }
    return false;
  });
}

TEST(KeptInputs, ComeBackAsTheyWereInEveryOrderAndEachWaitIsNeeded) {
  EXPECT_FALSE(noticed(LeftOut::none));
  EXPECT_TRUE(noticed(LeftOut::before_write));
  EXPECT_TRUE(noticed(LeftOut::before_use));
}

TEST(KeptInputs, AreChargedToHostMemoryAndNotToTheDevice) {
  for (const bool kept_on_host : {false, true}) {
    const auto device = planning::open_gpu_memory();
    const auto ranks = planning::communicator(0, 1, BackendKind::local);
    RecomputePlan plan = RecomputePlan::full(kBlocks);
    plan.inputs_on_host = kept_on_host;
    const Training training(*ranks, *device, {.compute = DType::bf16}, gpt2_of_blocks(),
                            kRowOfTokens, 1, {}, plan);
    const std::int64_t width = gpt2_of_blocks().width;
    const MemorySnapshot ledger = device->ledger().snapshot();
    const auto found = ledger.labels.find("activations/kept inputs");
    EXPECT_EQ(found != ledger.labels.end(), kept_on_host);
    if (kept_on_host) {
      EXPECT_EQ(found->second, (kBlocks - 2) * 9 * width * 2);
    }
  }
}

}  // namespace
}  // namespace zero::testing
