// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "device/cpu/primitives.h"
#include "device/device.h"
#include "tests/errors.h"

namespace zero {
namespace {

template <typename T>
std::vector<T> combined(ReduceOp op, std::vector<std::vector<T>> values) {
  const auto device = cpu::open();
  std::vector<View> inputs;
  for (auto& value : values) inputs.push_back(View::of(std::span(value)));
  std::vector<T> to(values[0].size());
  device->kernels().combine(device->compute(), inputs, op, View::of(std::span(to)));
  device->kernels().combine(device->compute(), inputs, op, inputs[0]);
  // In place as elsewhere, NaN or not.
  EXPECT_EQ(std::memcmp(to.data(), values[0].data(), to.size() * sizeof(T)), 0);
  return to;
}

TEST(Combine, AddsByTheTreeWhereTheOrderMatters) {
  // ((1e8 + 1) + (-1e8 + 1)) + 3, where 1e8 + 1 rounds to 1e8 and -1e8 + 1 to -1e8.
  for (const std::size_t count : {1U, 64U, 1000U}) {
    const auto all = [count](float value) { return std::vector<float>(count, value); };
    EXPECT_EQ(combined<float>(ReduceOp::sum, {all(1e8F), all(1), all(-1e8F), all(1), all(3)}),
              all(3));
  }
  EXPECT_EQ(combined<double>(ReduceOp::sum, {{1e20}, {1}, {-1e20}, {1}, {3}}), (std::vector{3.0}));
}

TEST(Combine, WrapsIntegersAndKeepsTheLargestOrSmallest) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(combined<std::int32_t>(ReduceOp::sum, {{kMost, 2}, {1, -5}}),
            (std::vector<std::int32_t>{std::numeric_limits<std::int32_t>::min(), -3}));
  EXPECT_EQ(combined<std::int64_t>(ReduceOp::max, {{3, -1}, {-7, 9}, {4, 2}}),
            (std::vector<std::int64_t>{4, 9}));
  EXPECT_EQ(combined<double>(ReduceOp::min, {{3, -1}, {-7, 9}, {4, 2}}),
            (std::vector<double>{-7, -1}));
  const float nan = std::nanf("");
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    const std::vector<float> values = combined<float>(op, {{1, nan}, {nan, 2}, {3, 4}});
    EXPECT_TRUE(std::isnan(values[0]) && std::isnan(values[1])) << name_of(op);
  }
}

TEST(Combine, RefusesWhatItCannotDo) {
  std::vector<std::uint8_t> bytes(3);
  std::vector<float> floats(4);
  std::vector<double> doubles(4);
  const View view = View::of(std::span(floats));
  const auto refused = [](std::vector<View> inputs, const View& to) {
    const auto device = cpu::open();
    return error_of(
        [&] { device->kernels().combine(device->compute(), inputs, ReduceOp::sum, to); });
  };
  const View u8 = View::of(std::span(bytes));
  EXPECT_EQ(refused({u8}, u8), "cannot combine u8 values; expected fp32, fp64, i32 or i64");
  EXPECT_EQ(refused({}, view), "combine: no inputs, expected at least one");
  EXPECT_EQ(refused({view, view.slice(0, 3)}, view),
            "combine: an input has 3 fp32, expected the destination's 4 fp32");
  EXPECT_EQ(refused({View::of(std::span(doubles))}, view),
            "combine: an input has 4 fp64, expected the destination's 4 fp32");
  EXPECT_EQ(refused({view.slice(0, 3)}, view.slice(1, 3)),
            "combine: the destination overlaps an input; expected the very same memory, or none "
            "of it");
}

TEST(CpuDevice, NamesWhatDecidesItsBits) {
  EXPECT_EQ(cpu::open()->bits(), "cpu " + std::string(cpu::simd_target()));
}

}  // namespace
}  // namespace zero
