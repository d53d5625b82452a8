// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device's kernels against the CPU's, bit for bit: on an emulated GPU and on a real one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "device/cuda/index.h"
#include "optim/optimizer.h"
#include "tests/cuda/on_device.h"
#include "tests/errors.h"

namespace zero::cuda {
namespace {

constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16};

class CudaKernels : public OnDevice {
 protected:
  /// Any bits: subnormals, infinities, NaNs.
  std::unique_ptr<HostValues> any(std::int64_t count, DType dtype) {
    auto values = std::make_unique<HostValues>(count, dtype);
    for (std::byte& byte : values->bytes) byte = static_cast<std::byte>(random_());
    return values;
  }

  /// One reduction on both devices; the same results and limbs.
  struct Shape {
    DType from;
    DType to;
    int inputs;
    int addends;
    std::int64_t count;
    std::int64_t shift = 0;  // elements off an aligned address
    std::shared_ptr<const std::vector<ElementRange>> excluded = nullptr;
  };
  void expect_same(const Shape& shape) {
    std::vector<std::unique_ptr<HostValues>> kept;
    std::vector<View> host;
    std::vector<View> there;
    for (int i = 0; i < shape.inputs + shape.addends; ++i) {
      kept.push_back(normal(shape.count, i < shape.inputs ? shape.from : DType::fp32));
      host.push_back(kept.back()->view);
      there.push_back(upload(host.back(), shape.shift));
    }
    HostValues result(shape.count, shape.to);
    const auto take = [&](std::vector<View>& views, const View& to) {
      const auto addends = views.begin() + shape.inputs;
      ReduceEpilogue epilogue{
          {addends, views.end()}, to, std::make_shared<ExactSum>(), shape.excluded, 128};
      views.erase(addends, views.end());
      return epilogue;
    };
    const ReduceEpilogue expected = take(host, result.view);
    const ReduceEpilogue epilogue = take(there, allocate(shape.count, shape.to, shape.shift));
    cpu::tree_reduce(host, expected);
    device_->kernels().tree_reduce(device_->compute(), there, epilogue);
    ASSERT_TRUE(result.bytes == download(epilogue.destination))
        << shape.inputs << " x " << name_of(shape.from) << " to " << name_of(shape.to);
    ASSERT_TRUE(std::ranges::equal(expected.norm->limbs(), epilogue.norm->limbs()));
    buffers_.clear();
  }
};

TEST_F(CudaKernels, ConvertAnyValueAsTheCpuDoes) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      for (const auto& [count, shift] :
           {std::pair(70'001, 0), std::pair(515, 1), std::pair(7, 3)}) {
        const auto values = any(count, from);
        HostValues expected(count, to);
        cpu::convert(values->view, expected.view);
        const View result = allocate(count, to, shift);
        device_->kernels().convert(device_->compute(), upload(values->view, shift), result);
        ASSERT_TRUE(expected.bytes == download(result)) << name_of(from) << " to " << name_of(to);
        buffers_.clear();
      }
    }
  }
}

// Floats of all values of fp16, and those around the middle between two neighbours.
TEST_F(CudaKernels, ConvertEveryFp16AndEveryTieAsTheCpuDoes) {
  HostValues halves(1 << 16, DType::fp16);
  std::vector<float> floats{65519.0F, std::nextafter(65520.0F, 0.0F), 65520.0F, 1e-30F, -1e30F};
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float16 half{static_cast<std::uint16_t>(bits)};
    halves.view.as<float16>()[static_cast<std::size_t>(bits)] = half;
    const float value = to_float(half);
    const float tie = (value + to_float(float16{static_cast<std::uint16_t>(bits + 1)})) / 2;
    const float away = std::nextafter(tie, std::copysign(1e9F, tie));
    floats.insert(floats.end(), {value, std::nextafter(tie, 0.0F), tie, away});
  }
  const auto expect_same = [&](const View& from, DType to) {
    HostValues expected(from.count(), to);
    cpu::convert(from, expected.view);
    const View result = allocate(from.count(), to);
    device_->kernels().convert(device_->compute(), upload(from), result);
    EXPECT_TRUE(expected.bytes == download(result)) << name_of(from.dtype());
  };
  expect_same(halves.view, DType::fp32);
  expect_same(View::of(std::span(floats)), DType::fp16);
}

TEST_F(CudaKernels, ConvertInPlaceWhereElementsShrink) {
  for (const DType to : {DType::bf16, DType::fp16}) {
    const auto values = normal(50'003, DType::fp32);
    HostValues expected(50'003, to);
    cpu::convert(values->view, expected.view);
    const View there = upload(values->view);
    const View result = there.reinterpret(to, there.count());
    device_->kernels().convert(device_->compute(), there, result);
    ASSERT_TRUE(expected.bytes == download(result));
  }
}

TEST_F(CudaKernels, FillAndGenerate) {
  constexpr std::int64_t kCount = (std::int64_t{5} << 19) + 3;  // three pieces
  const View view = allocate(kCount, DType::fp32);
  device_->kernels().generate(device_->compute(), view,
                              [](std::int64_t begin, std::span<float> out) {
                                for (float& value : out) value = static_cast<float>(begin++);
                              });
  const auto bytes = download(view);
  for (std::int64_t i = 0; i < kCount; ++i) {
    float value = 0;
    std::memcpy(&value, &bytes[static_cast<std::size_t>(i) * sizeof value], sizeof value);
    ASSERT_EQ(static_cast<float>(i), value);
  }
  device_->kernels().zero(device_->compute(), view.slice(1, 2));
  device_->kernels().poison(device_->compute(), view.slice(3, 1));
  const auto filled = download(view.slice(1, 3));
  for (std::size_t i = 0; i < 12; ++i) ASSERT_EQ(std::byte(i < 8 ? 0 : 0xff), filled[i]);
}

TEST_F(CudaKernels, SumTreesWithEpilogueAsTheCpuDoes) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      for (const int inputs : {1, 2, 3, 4, 5, 7, 8}) {
        expect_same({from, to, inputs, inputs % 3, 64 * inputs + 1, inputs % 2});
      }
      expect_same({from, to, 4, 1, 5000});
      expect_same({from, to, 13, 0, 300});
      expect_same({from, to, 64, 0, 129});
      expect_same({from, to, 77, 1, 65});
    }
  }
  expect_same({DType::bf16, DType::fp32, 2048, 0, 9});
}

TEST_F(CudaKernels, SumsWriteOverAnInputOrAnAddend) {
  constexpr std::int64_t kCount = 20'003;
  for (const DType dtype : kDTypes) {
    const auto input = normal(kCount, dtype);
    const auto addend = normal(kCount, DType::fp32);
    HostValues result(kCount, dtype);
    const auto norm = std::make_shared<ExactSum>();
    cpu::tree_reduce(std::vector{input->view, input->view}, {{addend->view}, result.view, norm});
    for (const bool over_input : {true, false}) {
      const View a = upload(input->view);
      const View b = upload(input->view);
      const View c = upload(addend->view);
      const auto sum = std::make_shared<ExactSum>();
      const View to = over_input ? b : c.reinterpret(dtype, kCount);
      device_->kernels().tree_reduce(device_->compute(), {a, b}, {{c}, to, sum});
      ASSERT_TRUE(result.bytes == download(to));
      ASSERT_EQ(norm->value(), sum->value());
    }
  }
}

TEST_F(CudaKernels, NormsLeaveOutWhatIsUncounted) {
  auto many = std::make_shared<std::vector<ElementRange>>();
  for (std::int64_t at = 100; at < 5000; at += 1 + static_cast<std::int64_t>(random_() % 40)) {
    const auto count = static_cast<std::int64_t>(random_() % 9);
    many->push_back({at, count});
    at += count;
  }
  expect_same({DType::bf16, DType::fp32, 2, 0, 4500, 0, many});
  const auto few = std::make_shared<std::vector<ElementRange>>(
      std::vector<ElementRange>{{0, 140}, {200, 1}, {900, 10'000}});
  expect_same({DType::fp32, DType::bf16, 3, 1, 1000, 0, few});
  auto dense = std::make_shared<std::vector<ElementRange>>();
  for (std::int64_t at = 0; at < 1000; at += 2) dense->push_back({at, 1});
  expect_same({DType::fp32, DType::fp32, 1, 0, 700, 0, dense});
}

TEST_F(CudaKernels, NormsTellNonFiniteValues) {
  auto values = normal(1000, DType::fp32);
  values->view.as<float>()[70] = std::numeric_limits<float>::infinity();
  values->view.as<float>()[500] = std::nanf("");
  const View there = upload(values->view);
  const auto norm = std::make_shared<ExactSum>();
  device_->kernels().tree_reduce(device_->compute(), {there}, {{}, there, norm});
  device_->compute().synchronize();
  EXPECT_EQ(2, norm->nonfinite());
}

TEST_F(CudaKernels, ReductionsRefuseWhatTheyCannotDo) {
  const View there = allocate(4, DType::fp32);
  const auto reduce = [&](const std::vector<View>& inputs, const ReduceEpilogue& epilogue) {
    return error_of([&] { device_->kernels().tree_reduce(device_->compute(), inputs, epilogue); });
  };
  EXPECT_EQ("tree_reduce: 2049 inputs and 9 addends; a CUDA device takes 2048 and 8",
            reduce(std::vector(2049, there), {std::vector(9, there), there, nullptr}));
  std::vector<float> host(4);
  EXPECT_EQ(
      "tree_reduce: a view of 4 fp32 is host memory; copy it to the device first (equal "
      "dtypes)",
      reduce({View::of(std::span(host))}, {{}, there, nullptr}));
}

TEST_F(CudaKernels, CombineAsTheCpuDoes) {
  for (const DType dtype : {DType::fp32, DType::fp64, DType::i32, DType::i64}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
      for (const std::size_t inputs : {1, 2, 5, 8, 13, 100}) {
        std::vector<std::unique_ptr<HostValues>> kept;
        std::vector<View> host;
        std::vector<View> there;
        for (std::size_t i = 0; i < inputs; ++i) {
          // Bits of two fp32 values are a normal fp64; NaNs differ in their payloads alone.
          kept.push_back(normal(300 * size_of(dtype) / 4, DType::fp32));
          host.push_back(kept.back()->view.reinterpret(dtype, 300));
          there.push_back(upload(host.back(), 1));
        }
        HostValues expected(300, dtype);
        cpu::combine(host, op, expected.view);
        device_->kernels().combine(device_->compute(), there, op, there.back());
        ASSERT_TRUE(expected.bytes == download(there.back()))
            << name_of(dtype) << " " << name_of(op);
        buffers_.clear();
      }
    }
  }
}

TEST(ShrinkingRanges, NeverWriteOnWhatALaterOneReads) {
  for (const std::int64_t count : {1, 7, 8, 9, 1000}) {
    std::int64_t done = 0;
    for_shrinking_ranges(count, 8, [&](const ElementRange& range) {
      EXPECT_EQ(done, range.begin);
      done += range.count;
      if (range.begin > 0) {
        EXPECT_LE(done, 2 * range.begin);  // written up to where it begins to read
      }
    });
    EXPECT_EQ(count, done);
  }
}

struct UpdateCase {
  const char* name;
  OptimizerConfig config;
};

class CudaOptimizer : public CudaKernels, public ::testing::WithParamInterface<UpdateCase> {};

INSTANTIATE_TEST_SUITE_P(
    OfEachKind, CudaOptimizer,
    ::testing::Values(UpdateCase{"AdamW", {.kind = OptimizerConfig::Kind::adamw}},
                      UpdateCase{"Adam", {.kind = OptimizerConfig::Kind::adam}},
                      UpdateCase{"Sgd", {.kind = OptimizerConfig::Kind::sgd}},
                      UpdateCase{"Momentum",
                                 {.kind = OptimizerConfig::Kind::sgd, .momentum = 0.9}}),
    [](const auto& each) { return each.param.name; });

TEST_P(CudaOptimizer, GivesTheCpusBits) {
  const auto cpu = cpu::open();
  const auto here = make_optimizer(GetParam().config, *cpu);
  const auto there = make_optimizer(GetParam().config, *device_);
  ASSERT_EQ(here->moments(), there->moments());
  for (const DType gradient : kDTypes) {
    for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {  // fp32: no copy
      for (const auto& [count, shift] :
           {std::pair(4099, 0), std::pair(2048, 0), std::pair(70, 1)}) {
        const auto master = normal(count, DType::fp32);
        const auto mean = normal(count, DType::fp32);
        const auto square = normal(count, DType::fp32);
        for (float& value : square->view.as<float>()) value *= value;
        const auto slope = not_all_finite(count, gradient);
        HostValues copy(compute == DType::fp32 ? 0 : count, compute);
        UpdateArguments arguments{
            .master = upload(master->view, shift),
            .moments = {upload(mean->view, shift), upload(square->view, shift)},
            .gradient = upload(slope->view, shift),
            .compute = allocate(copy.view.count(), compute, shift),
            .learning_rate = 3e-3,
            .weight_decay = 0.1,
            .gradient_scale = 0.37F,
            .step = 3};
        there->update(device_->compute(), arguments);
        device_->compute().synchronize();  // before the host values change
        const UpdateArguments on_device = arguments;
        arguments.master = master->view;
        arguments.moments = {mean->view, square->view};
        arguments.gradient = slope->view;
        arguments.compute = copy.view;
        here->update(cpu->compute(), arguments);
        ASSERT_TRUE(same(master->view, on_device.master));
        ASSERT_TRUE(same(mean->view, on_device.moments[0]));
        ASSERT_TRUE(same(square->view, on_device.moments[1]));
        ASSERT_TRUE(same(copy.view, on_device.compute));
        buffers_.clear();
      }
    }
  }
}

}  // namespace
}  // namespace zero::cuda
