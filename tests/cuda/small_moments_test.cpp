// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Updates with small moments on the CUDA device, emulated or real, against the CPU's, bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/checked_math.h"
#include "optim/optimizer.h"
#include "tests/cuda/on_device.h"

namespace zero::cuda {
namespace {

struct SmallCase {
  const char* name;
  OptimizerConfig config;
};

class CudaSmallMoments : public OnDevice, public ::testing::WithParamInterface<SmallCase> {
 protected:
  /// The same moments and their scales on the CPU and the device, from zeros on.
  struct Moments {
    std::vector<std::unique_ptr<HostValues>> here;
    std::array<View, 2> values;
    std::array<View, 2> scales;
  };
  Moments moments(std::int64_t count, std::int64_t shift, MomentFormat format) {
    Moments made;
    const std::int64_t blocks = div_ceil(count, kMomentBlock);
    for (std::size_t i = 0; i < 2; ++i) {
      made.here.push_back(std::make_unique<HostValues>(count, moment_dtype(format)));
      made.values[i] = upload(made.here.back()->view, shift);
      made.here.push_back(std::make_unique<HostValues>(blocks, DType::fp32));
      made.scales[i] = upload(made.here.back()->view);
    }
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(
    OfEachKind, CudaSmallMoments,
    ::testing::Values(
        SmallCase{"AdamW_bf16", {.moments = MomentFormat::bf16}},
        SmallCase{"AdamW_8bit", {.moments = MomentFormat::eight_bit}},
        SmallCase{"Adam_8bit",
                  {.kind = OptimizerConfig::Kind::adam, .moments = MomentFormat::eight_bit}},
        SmallCase{
            "Momentum_bf16",
            {.kind = OptimizerConfig::Kind::sgd, .momentum = 0.9, .moments = MomentFormat::bf16}},
        SmallCase{"Momentum_8bit",
                  {.kind = OptimizerConfig::Kind::sgd,
                   .momentum = 0.9,
                   .moments = MomentFormat::eight_bit}}),
    [](const auto& each) { return each.param.name; });

/// The elements of an update, the type of its gradient and copy (fp32: no copy).
struct Elements {
  std::int64_t count;
  std::int64_t shift;  // off an aligned address
  DType dtype;
  LogicalElements names;
};
constexpr std::int64_t kKeys = std::int64_t{1} << 32;  // elements that have rounding keys in common
constexpr LogicalElements kWhole{.parameter = 5, .first = kKeys - 2100};
constexpr LogicalElements kSlice{.parameter = 5, .first = 9, .run = 100, .stride = 301};
constexpr LogicalElements kFarSlice{
    .parameter = 5, .first = kKeys - 900, .run = 700, .stride = kKeys / 2};
constexpr Elements kUpdates[] = {
    {1, 0, DType::bf16, kSlice},       {255, 0, DType::fp16, kWhole},
    {2048, 0, DType::bf16, kSlice},    {2304, 0, DType::fp32, kWhole},
    {4099, 0, DType::fp16, kWhole},    {4099, 0, DType::bf16, kFarSlice},
    {4099, 1, DType::fp16, kFarSlice},
};

TEST_P(CudaSmallMoments, GiveTheCpusBits) {
  const OptimizerConfig& config = GetParam().config;
  const auto cpu = cpu::open();
  const auto here = make_optimizer(config, *cpu);
  const auto there = make_optimizer(config, *device_);
  for (const auto& [count, shift, dtype, names] : kUpdates) {
    const auto master = normal(count, DType::fp32);
    const View on_device = upload(master->view, shift);
    const Moments m = moments(count, shift, config.moments);
    HostValues copy(dtype == DType::fp32 ? 0 : count, dtype);
    const View copied = allocate(copy.view.count(), dtype, shift);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const auto slope = step < 3 ? normal(count, dtype) : not_all_finite(count, dtype);
      UpdateArguments arguments{.master = on_device,
                                .moments = m.values,
                                .gradient = upload(slope->view, shift),
                                .compute = copied,
                                .learning_rate = 3e-3,
                                .weight_decay = 0.1,
                                .gradient_scale = 0.37F,
                                .step = step,
                                .scales = m.scales,
                                .elements = names};
      there->update(device_->compute(), arguments);
      device_->compute().synchronize();
      arguments.master = master->view;
      arguments.moments = {m.here[0]->view, m.here[2]->view};
      arguments.scales = {m.here[1]->view, m.here[3]->view};
      arguments.gradient = slope->view;
      arguments.compute = copy.view;
      here->update(cpu->compute(), arguments);
      ASSERT_TRUE(same(master->view, on_device)) << count << " step " << step;
      ASSERT_TRUE(same(copy.view, copied));
      for (std::size_t i = 0; i < 2; ++i) {
        ASSERT_TRUE(same(m.here[2 * i]->view, m.values[i])) << "moment " << i;
        ASSERT_TRUE(same(m.here[2 * i + 1]->view, m.scales[i])) << "scale " << i;
      }
    }
    if (config.moments == MomentFormat::eight_bit) {
      const std::int64_t phase = count > 300 ? 270 : 0;
      const auto part = [&](const View& codes, const View& scales) {
        return CodedMoment{0, codes, scales}.slice(phase, count - phase);
      };
      const View decoded = allocate(count - phase, DType::fp32);
      there->decode(device_->compute(), part(m.values[0], m.scales[0]), decoded);
      device_->compute().synchronize();
      HostValues expected(count - phase, DType::fp32);
      here->decode(cpu->compute(), part(m.here[0]->view, m.here[1]->view), expected.view);
      ASSERT_TRUE(same(expected.view, decoded));
    }
    buffers_.clear();
  }
}

}  // namespace
}  // namespace zero::cuda
