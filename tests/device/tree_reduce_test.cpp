// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "device/cpu/dispatch.h"
#include "device/cpu/primitives.h"
#include "device/device.h"
#include "tests/errors.h"
#include "tests/support/reference_sums.h"

namespace zero {
namespace {

constexpr DType kDTypes[] = {DType::fp32, DType::bf16, DType::fp16};

float read(const View& view, std::int64_t i) {
  float value = 0;
  cpu::dispatch(view.dtype(), [&](auto type) {
    value = to_float(view.as<typename decltype(type)::type>()[static_cast<std::size_t>(i)]);
  });
  return value;
}

/// What tree_reduce should leave in destination[i], as fp32.
float expected_at(std::span<const View> inputs, const ReduceEpilogue& epilogue, std::int64_t i) {
  std::vector<float> values;
  for (const View& input : inputs) values.push_back(read(input, i));
  float value = testing::tree_sum(values);
  for (const View& addend : epilogue.addends) value += read(addend, i);
  return testing::rounded_to(epilogue.destination.dtype(), value);
}

std::vector<float> expected(std::span<const View> inputs, const ReduceEpilogue& epilogue) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < epilogue.destination.count(); ++i) {
    values.push_back(expected_at(inputs, epilogue, i));
  }
  return values;
}

double expected_norm(std::span<const float> values) {
  ExactSum norm;
  for (std::size_t block = 0; block < values.size(); block += 64) {
    double lanes[8] = {};
    for (std::size_t i = block; i < std::min(block + 64, values.size()); ++i) {
      lanes[i % 8] += double{values[i]} * values[i];
    }
    norm.add(((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
             ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7])));
  }
  return norm.value();
}

class TreeReduce : public ::testing::Test {
 protected:
  /// `count` normal values of `dtype`, one element off any vector's alignment.
  View random_view(std::int64_t count, DType dtype) {
    buffers_.push_back(device_->allocate(count + 1, dtype, MemoryClass::other, "x"));
    const View view = buffers_.back().slice(1, count);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal_(random_);
    cpu::convert(View::of(std::span(values)), view);
    return view;
  }
  std::vector<View> random_views(int views, std::int64_t count, DType dtype) {
    std::vector<View> all;
    for (int i = 0; i < views; ++i) all.push_back(random_view(count, dtype));
    return all;
  }
  static void expect_bits(std::span<const float> values, const View& found) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]),
                std::bit_cast<std::uint32_t>(read(found, static_cast<std::int64_t>(i))))
          << "element " << i << " of " << values.size();
    }
  }

  std::unique_ptr<Device> device_ = cpu::open({.threads = 3});
  std::vector<Buffer> buffers_;
  std::mt19937 random_{5};
  std::normal_distribution<float> normal_;
};

TEST_F(TreeReduce, MatchesTheScalarTreeBitForBit) {
  for (const DType from : kDTypes) {
    for (const DType to : kDTypes) {
      for (int inputs = 1; inputs <= 9; ++inputs) {
        for (const std::int64_t count : {0, 1, 3, 64, 67, 511, 1025}) {
          const auto views = random_views(inputs, count, from);
          const ReduceEpilogue epilogue{.addends = random_views(inputs % 3, count, DType::fp32),
                                        .destination = random_view(count, to),
                                        .norm = std::make_shared<ExactSum>()};
          const auto values = expected(views, epilogue);
          cpu::tree_reduce(views, epilogue);
          expect_bits(values, epilogue.destination);
          ASSERT_EQ(expected_norm(values), epilogue.norm->value());
          buffers_.clear();
        }
      }
    }
  }
}

TEST_F(TreeReduce, TakesManyInputs) {
  for (const int inputs : {16, 31, 100}) {
    const auto views = random_views(inputs, 130, DType::bf16);
    const ReduceEpilogue epilogue{
        .addends = {}, .destination = random_view(130, DType::fp32), .norm = nullptr};
    const auto values = expected(views, epilogue);
    cpu::tree_reduce(views, epilogue);
    expect_bits(values, epilogue.destination);
  }
}

TEST_F(TreeReduce, GivesTheSameBitsOnAnyThreadsAndStream) {
  constexpr std::int64_t kCount = 50'003;
  const auto views = random_views(3, kCount, DType::bf16);
  std::vector<double> norms;
  std::vector<std::vector<std::byte>> results;
  for (Stream* stream : {&device_->compute(), &device_->communication()}) {
    const ReduceEpilogue epilogue{.addends = {},
                                  .destination = random_view(kCount, DType::bf16),
                                  .norm = std::make_shared<ExactSum>()};
    device_->kernels().tree_reduce(*stream, views, epilogue);
    stream->synchronize();
    norms.push_back(epilogue.norm->value());
    const auto* bytes = static_cast<const std::byte*>(epilogue.destination.data());
    results.emplace_back(bytes, bytes + epilogue.destination.bytes());
  }
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(TreeReduce, MayWriteOverAnInputOrAnAddend) {
  constexpr std::int64_t kCount = 40'001;
  for (const DType dtype : kDTypes) {
    for (std::size_t which = 0; which < 3; ++which) {
      const auto views = random_views(3, kCount, dtype);
      const ReduceEpilogue epilogue{.addends = random_views(1, kCount, DType::fp32),
                                    .destination = views[which],
                                    .norm = nullptr};
      const auto values = expected(views, epilogue);
      cpu::tree_reduce(views, epilogue, 3);
      expect_bits(values, epilogue.destination);
    }
    const auto views = random_views(2, kCount, DType::bf16);
    const auto addends = random_views(2, kCount, DType::fp32);
    const ReduceEpilogue epilogue{
        .addends = addends, .destination = addends[1].reinterpret(dtype, kCount), .norm = nullptr};
    const auto values = expected(views, epilogue);
    cpu::tree_reduce(views, epilogue, 3);
    expect_bits(values, epilogue.destination);
    buffers_.clear();
  }
}

TEST_F(TreeReduce, OfOneViewOntoItselfOnlyReadsIt) {
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const page =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  for (const DType dtype : kDTypes) {
    ASSERT_EQ(mprotect(page, bytes, PROT_READ | PROT_WRITE), 0);
    const std::int64_t count = static_cast<std::int64_t>(bytes) / size_of(dtype);
    const View values(page, count, dtype, nullptr);
    cpu::convert(random_view(count, dtype), values);
    const ReduceEpilogue epilogue{
        .addends = {}, .destination = values, .norm = std::make_shared<ExactSum>()};
    const double norm = expected_norm(expected(std::span(&values, 1), epilogue));
    ASSERT_EQ(mprotect(page, bytes, PROT_READ), 0);
    cpu::tree_reduce(std::span(&values, 1), epilogue);
    EXPECT_EQ(norm, epilogue.norm->value());
    cpu::tree_reduce(std::span(&values, 1),
                     {.addends = {}, .destination = values, .norm = nullptr});
  }
  munmap(page, bytes);
}

TEST_F(TreeReduce, NormDoesNotDependOnCutsAtMultiplesOf64) {
  constexpr std::int64_t kCount = 64 * 40 + 17;
  const auto views = random_views(4, kCount, DType::bf16);
  const View destination = random_view(kCount, DType::bf16);
  const ReduceEpilogue whole{
      .addends = {}, .destination = destination, .norm = std::make_shared<ExactSum>()};
  cpu::tree_reduce(views, whole);
  for (int trial = 0; trial < 20; ++trial) {
    const auto norm = std::make_shared<ExactSum>();
    std::int64_t begin = 0;
    while (begin < kCount) {
      const auto step = 64 * static_cast<std::int64_t>(1 + random_() % 15);
      const std::int64_t count = std::min(step, kCount - begin);
      std::vector<View> cut;
      for (const View& view : views) cut.push_back(view.slice(begin, count));
      cpu::tree_reduce(
          cut, {.addends = {}, .destination = destination.slice(begin, count), .norm = norm});
      begin += count;
    }
    EXPECT_EQ(whole.norm->value(), norm->value());
    EXPECT_TRUE(std::ranges::equal(whole.norm->limbs(), norm->limbs()));
  }
}

TEST_F(TreeReduce, LargeDestinationsGetTheBitsOfSmallOnes) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 19) + 100;  // 1 MiB and more in any dtype
  constexpr std::int64_t kPiece = 64 * 1000;
  const auto inputs = random_views(2, kCount, DType::bf16);
  for (const DType dtype : kDTypes) {
    const Buffer large = device_->allocate(kCount, dtype, MemoryClass::other, "large");
    const Buffer small = device_->allocate(kCount, dtype, MemoryClass::other, "small");
    const auto norm = std::make_shared<ExactSum>();
    cpu::tree_reduce(inputs, {.addends = {}, .destination = large.view(), .norm = norm}, 3);
    const auto expected_sum = std::make_shared<ExactSum>();
    for (std::int64_t begin = 0; begin < kCount; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, kCount - begin);
      const std::vector<View> cut{inputs[0].slice(begin, count), inputs[1].slice(begin, count)};
      cpu::tree_reduce(
          cut, {.addends = {}, .destination = small.slice(begin, count), .norm = expected_sum});
    }
    EXPECT_EQ(0, std::memcmp(large.view().data(), small.view().data(),
                             static_cast<std::size_t>(large.view().bytes())));
    EXPECT_EQ(expected_sum->value(), norm->value());
  }
}

TEST_F(TreeReduce, NormIsOfTheRoundedValuesAndAddsUp) {
  std::vector<float> values{1.00001F, 2.00001F};  // round to 1 and 2 in bf16
  const auto norm = std::make_shared<ExactSum>();
  const View destination = random_view(2, DType::bf16);
  const std::vector<View> inputs{View::of(std::span(values))};
  cpu::tree_reduce(inputs, {.addends = {}, .destination = destination, .norm = norm});
  EXPECT_EQ(5.0, norm->value());
  cpu::tree_reduce(inputs, {.addends = {}, .destination = destination, .norm = norm});
  EXPECT_EQ(10.0, norm->value());
}

TEST_F(TreeReduce, NonFiniteValuesReachTheNorm) {
  std::vector<float> values(100, 1.0F);
  values[70] = std::numeric_limits<float>::infinity();
  const auto norm = std::make_shared<ExactSum>();
  cpu::tree_reduce(std::vector<View>{View::of(std::span(values))},
                   {.addends = {}, .destination = random_view(100, DType::fp32), .norm = norm});
  EXPECT_EQ(1, norm->nonfinite());  // its block
}

TEST_F(TreeReduce, NormLeavesOutWhatIsUncountedWhereverItIsCut) {
  constexpr std::int64_t kCount = 40'000;
  const auto ranges = std::make_shared<const std::vector<ElementRange>>(std::vector<ElementRange>{
      {0, 3}, {60, 10}, {500, 600}, {1100, 1}, {4096, 512}, {16'380, 8}, {39'999, 1}});
  std::vector<View> inputs{random_view(kCount, DType::bf16), random_view(kCount, DType::bf16)};
  inputs[0].as<bfloat16>()[501] = to_bfloat16(std::nanf(""));  // not this rank's to notice
  const View to = random_view(kCount, DType::fp32);
  ReduceEpilogue whole{{}, to, std::make_shared<ExactSum>(), ranges};
  std::vector<float> counted = expected(inputs, whole);
  for (const ElementRange& range : *ranges)
    std::fill_n(counted.begin() + range.begin, range.count, 0.0F);
  const double norm = expected_norm(counted);
  for (const int threads : {1, 3}) {
    whole.norm->clear();
    cpu::tree_reduce(inputs, whole, threads);
    EXPECT_EQ(norm, whole.norm->value());
    EXPECT_TRUE(std::isnan(to.as<float>()[501]));  // it is written as ever
  }
  for (const std::int64_t step : {64, 640, 4096}) {
    whole.norm->clear();
    for (std::int64_t begin = 0; begin < kCount; begin += step) {
      const std::int64_t count = std::min(step, kCount - begin);
      const std::vector<View> cut{inputs[0].slice(begin, count), inputs[1].slice(begin, count)};
      cpu::tree_reduce(cut, whole.slice(begin, count));
    }
    EXPECT_EQ(norm, whole.norm->value()) << step;
  }
}

TEST_F(TreeReduce, RefusesWhatItCannotDo) {
  const View fp32 = random_view(8, DType::fp32);
  const View bf16 = random_view(8, DType::bf16);
  const View other = random_view(8, DType::fp32);
  std::vector<double> doubles(8);
  const auto reduce = [&](std::vector<View> inputs, std::vector<View> addends, View to) {
    return error_of([&] {
      device_->kernels().tree_reduce(
          device_->compute(), std::move(inputs),
          {.addends = std::move(addends), .destination = to, .norm = nullptr});
    });
  };
  EXPECT_EQ("tree_reduce: no inputs, expected at least one", reduce({}, {}, fp32));
  EXPECT_EQ("tree_reduce: the destination is fp64, expected fp32, bf16 or fp16",
            reduce({fp32}, {}, View::of(std::span(doubles))));
  EXPECT_EQ(
      "tree_reduce: an input is bf16, expected all inputs of one of fp32, bf16, fp16 (the first "
      "is fp32)",
      reduce({fp32, bf16}, {}, other));
  EXPECT_EQ("tree_reduce: an input has 7 elements, expected the destination's 8",
            reduce({fp32.slice(0, 7)}, {}, other));
  EXPECT_EQ("tree_reduce: an addend is bf16, expected fp32", reduce({fp32}, {bf16}, other));
  EXPECT_EQ("tree_reduce: an addend has 3 elements, expected the destination's 8",
            reduce({fp32}, {fp32.slice(0, 3)}, other));
  EXPECT_EQ(
      "tree_reduce: the destination overlaps an input; expected the very same memory and dtype, or "
      "none of it",
      reduce({fp32}, {}, fp32.reinterpret(DType::bf16, 8)));
  EXPECT_EQ(
      "tree_reduce: the destination overlaps an addend; expected the same start, or none of it",
      reduce({fp32.slice(0, 4)}, {other.slice(0, 4)}, other.slice(2, 4)));
}

}  // namespace
}  // namespace zero
