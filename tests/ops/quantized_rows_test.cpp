// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/quantized_rows.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"
#include "ops/inference_ops.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::array kFormats{WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The definition, one element at a time.
int code_of(WeightFormat format, float value, float scale) {
  if (format == WeightFormat::nf4) {
    const auto& levels = code_levels(format);
    int best = 7;  // zero
    for (int i = 0; i < 16; ++i) {
      const auto distance = [&](int code) {
        return std::abs(value - to_float(levels[static_cast<std::size_t>(code)]) * scale);
      };
      if (distance(i) < distance(best)) best = i;
    }
    return best;
  }
  const float code = scale != 0 ? std::nearbyint(value / scale) : 0;
  if (format == WeightFormat::int8) return static_cast<int>(std::clamp(code, -127.0F, 127.0F));
  return static_cast<int>(std::clamp(code, -8.0F, 7.0F)) + 8;
}

/// The levels of a format's codes.
std::vector<float> levels_of(WeightFormat format) {
  std::vector<float> levels;
  if (format == WeightFormat::int8) {
    for (int i = -127; i <= 127; ++i) levels.push_back(static_cast<float>(i));
  } else {
    for (const bfloat16 level : code_levels(format)) levels.push_back(to_float(level));
  }
  return levels;
}

void expect_codes_of_definition(const QuantizedRows& rows, const std::vector<float>& values) {
  const WeightShape& shape = rows.shape;
  for (std::int64_t column = 0; column < shape.out; ++column) {
    for (std::int64_t depth = 0; depth < shape.in; ++depth) {
      const std::size_t at = rows.element_at(depth, column);
      const float scale = rows.scale(rows.group_of(depth), column);
      ASSERT_EQ(rows.codes[at], static_cast<std::uint8_t>(code_of(shape.format, values[at], scale)))
          << name_of(shape.format) << ": " << values[at] << " by " << scale;
    }
  }
}

// Between all neighbouring levels, the last value of one and the first of the other.
TEST(QuantizedRows, RoundAsTheDefinitionAtEveryBoundary) {
  for (const WeightFormat format : kFormats) {
    for (const float scale : {1.0F, 0.3125F, 0x1.6p-7F, 77.6875F, 0x1p-20F}) {
      const std::vector<float> levels = levels_of(format);
      // The first element of each column makes the scale, which is exact: fp16 holds it, and of
      // nf4 all are equal.
      const float largest = levels.front() * scale;
      std::vector<float> values;
      for (std::size_t i = 1; i < levels.size(); ++i) {
        float value = (levels[i - 1] + levels[i]) / 2 * scale;
        for (int step = 0; step < 4; ++step) value = std::nextafter(value, -kInfinity);
        for (int step = 0; step < 9; ++step) {
          values.push_back(value);
          value = std::nextafter(value, kInfinity);
        }
      }
      const std::int64_t in = 64;
      const std::int64_t out = 32 * div_ceil(std::ssize(values), 63 * std::int64_t{32});
      for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
        const WeightShape shape{in, out, layout, DType::fp32, format};
        QuantizedRows places(shape, 0, shape.file_rows());
        std::vector<float> tensor(static_cast<std::size_t>(in * out));
        std::size_t next = 0;
        for (std::int64_t column = 0; column < out; ++column) {
          for (std::int64_t depth = 0; depth < in; ++depth) {
            tensor[places.element_at(depth, column)] =
                depth == 0 ? largest : values[next++ % values.size()];
          }
        }
        const QuantizedRows rows = quantize(shape, 0, tensor, 2);
        EXPECT_EQ(rows.scale(0, 0), scale) << name_of(format);
        expect_codes_of_definition(rows, tensor);
      }
    }
  }
}

TEST(QuantizedRows, OfRandomTensorsAreThoseOfTheDefinitionOnAnyNumberOfThreads) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 1);
  for (const WeightFormat format : kFormats) {
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      const WeightShape shape{1300, 75, layout, DType::fp32, format};
      std::vector<float> tensor(static_cast<std::size_t>(shape.in * shape.out));
      // Groups of very different sizes, whose 8-bit scales are then far from right.
      for (std::size_t i = 0; i < tensor.size(); ++i) {
        tensor[i] = normal(random) * std::pow(10.0F, static_cast<float>(i / 97 % 9) - 6);
      }
      const QuantizedRows rows = quantize(shape, 0, tensor, 3);
      expect_codes_of_definition(rows, tensor);
      const QuantizedRows alone = quantize(shape, 0, tensor, 1);
      EXPECT_EQ(rows.codes, alone.codes);
      EXPECT_EQ(rows.scales, alone.scales);
    }
  }
}

TEST(QuantizedRows, RefuseAnElementWithoutACode) {
  for (const WeightFormat format : kFormats) {
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
      const WeightShape shape{100, 40, layout, DType::fp32, format};
      for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
        std::vector<float> tensor(4000, 1.0F);
        tensor[QuantizedRows(shape, 0, shape.file_rows()).element_at(99, 33)] = bad;
        EXPECT_THAT(error_of([&] { quantize(shape, 0, tensor, 1); }),
                    HasSubstr("input 99 of output 33 has weight"));
      }
    }
  }
  const std::vector<float> large(64, 1e6F);
  EXPECT_THAT(error_of([&] {
                quantize({2, 32, WeightLayout::out_in, DType::fp32, WeightFormat::q4}, 0, large, 1);
              }),
              HasSubstr("an element is 1000000; expected at most 524032"));
}

}  // namespace
}  // namespace zero::testing
