// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Products of stored weights: in fp32 bit for bit those of the values that the formats stand for.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <concepts>
#include <limits>
#include <random>

#include "base/half.h"
#include "device/cpu/primitives.h"
#include "ops/cpu/products.h"
#include "ops/cpu/skinny_product.h"
#include "ops/inference_ops.h"
#include "tests/only_target.h"
#include "tests/ops/zero_point_codes.h"

namespace zero::testing {
namespace {

struct Shape {
  std::int64_t in, out, rows;
};
void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.in << "x" << shape.out << "_rows" << shape.rows;
}

class WeightProducts : public ::testing::TestWithParam<Shape> {
 protected:
  std::vector<float> random(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = to_float(to_bfloat16(normal_(random_)));
    return values;
  }
  View view(std::vector<float>& values) const {
    return {values.data(), static_cast<std::int64_t>(values.size()), DType::fp32, device_.get()};
  }
  Buffer rounded(const std::vector<float>& values, DType dtype) const {
    Buffer buffer = device_->allocate(static_cast<std::int64_t>(values.size()), dtype,
                                      MemoryClass::activations, "rounded");
    cpu::convert(view(const_cast<std::vector<float>&>(values)), buffer.view());
    return buffer;
  }
  /// y = x W + bias with W stored in a format, from a tensor of files in either layout; prepared
  /// for `most` rows, or for those of x.
  std::vector<float> product(const WeightShape& shape, const std::vector<float>& tensor,
                             std::vector<float> x, const std::vector<float>& bias,
                             std::int64_t most = 0) {
    return product(
        shape,
        [&](InferenceOps& ops, std::int64_t first, std::int64_t count, const View& weight) {
          ops.pack(
              shape, first,
              std::span(tensor).subspan(static_cast<std::size_t>(first * shape.file_columns()),
                                        static_cast<std::size_t>(count * shape.file_columns())),
              weight);
        },
        std::move(x), bias, most);
  }
  /// Likewise, with pack(ops, first row of the tensor, rows, stored weight).
  template <typename Pack>
  requires std::invocable<Pack, InferenceOps&, std::int64_t, std::int64_t, const View&>
      std::vector<float> product(const WeightShape& shape, const Pack& pack, std::vector<float> x,
                                 const std::vector<float>& bias, std::int64_t most = 0) {
    const auto ops = make_inference_ops(*device_);
    const Buffer weight =
        device_->allocate(ops->weight_bytes(shape), DType::u8, MemoryClass::parameters, "weight");
    const std::int64_t step = pack_rows(shape);
    for (std::int64_t first = 0; first < shape.file_rows(); first += step) {
      pack(*ops, first, std::min(step, shape.file_rows() - first), weight.view());
    }
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / shape.in;
    const std::int64_t padded = ops->padded_rows(rows);
    x.resize(static_cast<std::size_t>(padded * shape.in));
    std::vector<float> y(static_cast<std::size_t>(padded * shape.out));
    ops->prepare(shape, std::max(most, rows));
    ops->allocate_scratch();
    const Buffer x_rounded = rounded(x, shape.dtype);
    const Buffer bias_rounded = rounded(bias, shape.dtype);
    ops->linear({shape, weight.view()}, rows, x_rounded.view(), bias_rounded.view(), view(y));
    device_->compute().synchronize();
    y.resize(static_cast<std::size_t>(rows * shape.out));
    return y;
  }

  /// Each y of (rows, out) within `bound` times the sum of the magnitudes of its terms, plus one,
  /// of x W + bias in fp64, W (out, in).
  static void expect_close_to_sums(const std::vector<float>& y, const std::vector<float>& x,
                                   const std::vector<float>& weight, const std::vector<float>& bias,
                                   double bound) {
    const std::size_t out = bias.size();
    const std::size_t in = weight.size() / out;
    for (std::size_t row = 0; row < x.size() / in; ++row) {
      for (std::size_t column = 0; column < out; ++column) {
        double sum = bias[column];
        double size = 1;
        for (std::size_t i = 0; i < in; ++i) {
          const double term = static_cast<double>(x[row * in + i]) * weight[column * in + i];
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(y[row * out + column], sum, bound * size)
            << "row " << row << ", column " << column;
      }
    }
  }

  std::mt19937 random_{3};
  std::normal_distribution<float> normal_{0, 1};
  std::unique_ptr<Device> device_ = cpu::open({.threads = 3});
};

// One sum an element, in the order of depth, on processors without fused multiply-adds too.
TEST_P(WeightProducts, AreCloseToSumsInFp64) {
  const auto [in, out, rows] = GetParam();
  const std::vector<float> tensor = random(in * out);
  const std::vector<float> x = random(rows * in);
  const std::vector<float> bias = random(out);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    const std::vector<float> y = product({in, out, WeightLayout::out_in}, tensor, x, bias);
    ASSERT_EQ(y.size(), static_cast<std::size_t>(rows * out));
    expect_close_to_sums(y, x, tensor, bias, 1e-5);
  }
}

TEST_P(WeightProducts, DoNotDependOnTheLayoutOfFiles) {
  const auto [in, out, rows] = GetParam();
  const std::vector<float> tensor = random(in * out);
  std::vector<float> turned(tensor.size());
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t j = 0; j < out; ++j) {
      turned[static_cast<std::size_t>(i * out + j)] = tensor[static_cast<std::size_t>(j * in + i)];
    }
  }
  const std::vector<float> x = random(rows * in);
  const std::vector<float> bias = random(out);
  for (const WeightFormat format :
       {WeightFormat::plain, WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4}) {
    EXPECT_EQ(product({in, out, WeightLayout::out_in, DType::fp32, format}, tensor, x, bias),
              product({in, out, WeightLayout::in_out, DType::fp32, format}, turned, x, bias));
  }
}

// What the formats make of a matrix (out, in), written down once more and plainly.
class Quantized {
 public:
  Quantized(const std::vector<float>& tensor, std::int64_t in, std::int64_t out)
      : tensor_(tensor), in_(in), out_(out) {}

  std::vector<float> int8() const {
    return by_groups(in_, [&](std::int64_t column, std::int64_t first, std::int64_t end) {
      const float scale = std::abs(largest(column, first, end)) / 127;
      return [=](float value) { return scale > 0 ? std::nearbyint(value / scale) * scale : 0; };
    });
  }
  std::vector<float> q4() const {
    return by_groups(128, [&](std::int64_t column, std::int64_t first, std::int64_t end) {
      const float scale = to_float(to_float16(largest(column, first, end) / -8));
      return [=](float value) {
        const float code = scale != 0 ? std::nearbyint(value / scale) : 0;
        return std::min(7.0F, std::max(-8.0F, code)) * scale;
      };
    });
  }
  std::vector<float> nf4() const {
    static constexpr float kLevels[] = {-1.0F,        -0.69619280F, -0.52507305F, -0.39491749F,
                                        -0.28444138F, -0.18477343F, -0.09105004F, 0.0F,
                                        0.07958030F,  0.16093020F,  0.24611230F,  0.33791524F,
                                        0.44070983F,  0.56261700F,  0.72295684F,  1.0F};
    return by_groups(64, [&](std::int64_t column, std::int64_t first, std::int64_t end) {
      // The scales of 32 columns and 8 groups have codes between their least and largest.
      float least = std::numeric_limits<float>::max();
      float most = 0;
      const std::int64_t from = first / 512 * 512;
      for (std::int64_t other = column / 32 * 32; other < column / 32 * 32 + 32; ++other) {
        for (std::int64_t group = from; group < std::min(in_, from + 512); group += 64) {
          const float scale =
              other < out_ ? std::abs(largest(other, group, std::min(in_, group + 64))) : 0;
          least = std::min(least, scale);
          most = std::max(most, scale);
        }
      }
      const float step = (most - least) / 255;
      const float whole = std::abs(largest(column, first, end));
      const float code = step > 0 ? std::nearbyint((whole - least) / step) : 0;
      const float scale = code * step + least;
      return [=](float value) {
        float best = 0;
        for (const float level : kLevels) {
          const float candidate = to_float(to_bfloat16(level)) * scale;
          if (std::abs(value - candidate) < std::abs(value - best)) best = candidate;
        }
        return best;
      };
    });
  }

 private:
  float at(std::int64_t column, std::int64_t i) const {
    return tensor_[static_cast<std::size_t>(column * in_ + i)];
  }
  // With its sign.
  float largest(std::int64_t column, std::int64_t first, std::int64_t end) const {
    float found = 0;
    for (std::int64_t i = first; i < end; ++i) {
      if (std::abs(at(column, i)) > std::abs(found)) found = at(column, i);
    }
    return found;
  }
  template <typename MakeRounding>
  std::vector<float> by_groups(std::int64_t length, const MakeRounding& make) const {
    std::vector<float> values(tensor_.size());
    for (std::int64_t column = 0; column < out_; ++column) {
      for (std::int64_t first = 0; first < in_; first += length) {
        const std::int64_t end = std::min(in_, first + length);
        const auto rounding = make(column, first, end);
        for (std::int64_t i = first; i < end; ++i) {
          values[static_cast<std::size_t>(column * in_ + i)] = rounding(at(column, i));
        }
      }
    }
    return values;
  }

  const std::vector<float>& tensor_;
  std::int64_t in_, out_;
};

TEST_P(WeightProducts, OfCodesAreThoseOfTheirValues) {
  const auto [in, out, rows] = GetParam();
  std::vector<float> tensor = random(in * out);
  std::fill(tensor.begin(), tensor.begin() + in, 0.0F);  // a column without a scale
  const std::vector<float> x = random(rows * in);
  const std::vector<float> bias = random(out);
  const Quantized quantized(tensor, in, out);
  const auto expect_equal = [&](WeightFormat format, const std::vector<float>& values) {
    EXPECT_EQ(product({in, out, WeightLayout::out_in, DType::fp32, format}, tensor, x, bias),
              product({in, out, WeightLayout::out_in}, values, x, bias))
        << "format " << static_cast<int>(format);
  };
  expect_equal(WeightFormat::int8, quantized.int8());
  expect_equal(WeightFormat::q4, quantized.q4());
  expect_equal(WeightFormat::nf4, quantized.nf4());
}

TEST_P(WeightProducts, OfCodesBesideBf16AreCloseToSumsInFp64) {
  const auto [in, out, rows] = GetParam();
  const std::vector<float> tensor = random(in * out);
  const std::vector<float> x = random(rows * in);
  const std::vector<float> bias = random(out);
  const Quantized quantized(tensor, in, out);
  // Kernels that multiply whole values round them to bf16.
  const double bound = cpu::kernels_of(DType::bf16) == cpu::KernelKind::tiles ? 1.0 / 256 : 1e-5;
  const auto expect_close = [&](WeightFormat format, const std::vector<float>& values) {
    SCOPED_TRACE(name_of(format));
    const std::vector<float> y =
        product({in, out, WeightLayout::out_in, DType::bf16, format}, tensor, x, bias);
    ASSERT_EQ(y.size(), static_cast<std::size_t>(rows * out));
    expect_close_to_sums(y, x, values, bias, bound);
  };
  expect_close(WeightFormat::int8, quantized.int8());
  expect_close(WeightFormat::q4, quantized.q4());
  expect_close(WeightFormat::nf4, quantized.nf4());
}

TEST_P(WeightProducts, OfFirstRowsHaveTheSameBits) {
  const auto [in, out, rows] = GetParam();
  const std::vector<float> tensor = random(in * out);
  const std::vector<float> x = random(70 * in);
  const std::vector<float> bias = random(out);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const WeightFormat format :
         {WeightFormat::plain, WeightFormat::int8, WeightFormat::nf4, WeightFormat::q4}) {
      const WeightShape shape{in, out, WeightLayout::out_in, dtype, format};
      const std::vector<float> all = product(shape, tensor, x, bias);
      for (const std::int64_t some : {rows, 1L, 7L, 10L, 11L, 12L, 13L, 14L, 15L}) {
        const std::vector<float> y =
            product(shape, tensor, {x.begin(), x.begin() + some * in}, bias);
        EXPECT_TRUE(std::equal(y.begin(), y.end(), all.begin()))
            << name_of(dtype) << ' ' << name_of(format) << ", " << some << " rows";
      }
    }
  }
}

TEST_P(WeightProducts, OfZeroPointsAreThoseOfTheirValues) {
  const auto [in, out, rows] = GetParam();
  const std::vector<float> x = random(rows * in);
  const std::vector<float> bias = random(out);
  const double bound = cpu::kernels_of(DType::bf16) == cpu::KernelKind::tiles ? 1.0 / 256 : 1e-5;
  for (const std::int64_t group : {32, 64, 128, 0}) {
    const ZeroPoints codes(in, out, group, random_);
    const std::vector<float> values = codes.values();
    const auto found = [&](WeightLayout layout, DType dtype) {
      const WeightShape shape{in, out, layout, dtype, WeightFormat::u4, group};
      return product(
          shape,
          [&](InferenceOps& ops, std::int64_t first, std::int64_t count, const View& weight) {
            ops.pack(codes.rows(shape, first, count), weight);
          },
          x, bias);
    };
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      SCOPED_TRACE(hwy::TargetName(target));
      const OnlyTarget only(target);
      if (!cpu::has_gemv()) continue;  // where codes lie is found once, for the processor's own
      const auto expected = product({in, out, WeightLayout::out_in}, values, x, bias);
      EXPECT_EQ(found(WeightLayout::out_in, DType::fp32), expected) << "groups of " << group;
    }
    EXPECT_EQ(found(WeightLayout::in_out, DType::fp32), found(WeightLayout::out_in, DType::fp32));
    const auto beside_bf16 = found(WeightLayout::out_in, DType::bf16);
    expect_close_to_sums(beside_bf16, x, values, bias, bound);
  }
}

TEST_F(WeightProducts, OfFewerRowsThanPreparedFindTheirScratch) {
  constexpr std::int64_t in = 856;
  constexpr std::int64_t out = 286;
  const std::vector<float> tensor = random(in * out);
  const std::vector<float> x = random(640 * in);
  const std::vector<float> bias = random(out);
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const WeightFormat format : {WeightFormat::plain, WeightFormat::nf4}) {
      const WeightShape shape{in, out, WeightLayout::out_in, dtype, format};
      const std::vector<float> all = product(shape, tensor, x, bias);
      for (const std::int64_t some : {512, 369, 300, 64, 17}) {
        const std::vector<float> y =
            product(shape, tensor, {x.begin(), x.begin() + some * in}, bias, 640);
        EXPECT_TRUE(std::equal(y.begin(), y.end(), all.begin()))
            << name_of(dtype) << ' ' << name_of(format) << ", " << some << " rows";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, WeightProducts,
                         ::testing::Values(Shape{1, 1, 1}, Shape{31, 33, 3}, Shape{64, 400, 16},
                                           Shape{100, 193, 17}, Shape{210, 70, 40},
                                           Shape{33, 1000, 2}, Shape{257, 65, 5},
                                           Shape{1100, 40, 2}, Shape{1100, 40, 20},
                                           Shape{64, 3300, 40}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace zero::testing
