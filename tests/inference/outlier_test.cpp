// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Why int8 needs no llm_int8_threshold: large activations are not rounded to 8 bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "inference/inference_model.h"
#include "inference/model_folder.h"
#include "tests/inference/saved_model.h"

namespace zero::testing {
namespace {

constexpr std::int64_t kTokens = 60;

class Outliers : public ::testing::TestWithParam<bool> {
 protected:
  static DecoderShape config() {
    if (GetParam()) return small_gpt2({{"width", 256}, {"heads", 4}});
    return small_llama({{"width", 256}, {"intermediate", 680}});
  }
  Outliers() { with_saved_model(config(), folder_, 1); }

  /// Logits where each norm's output is `factor` times as large in six features: those that go into
  /// qkv, MLP and head.
  std::vector<float> logits(float factor, DType dtype, WeightFormat format) const {
    const auto device = cpu::open();
    InferenceModel model(*device, config(),
                         {.dtype = dtype, .weights = format, .rows = 64, .logit_rows = kTokens});
    const ModelFolder folder(folder_);
    const ModelWeights::Source source = folder.source();
    const std::vector<LogicalTensor> tensors = ModelWeights::tensors(config());
    model.load([&](std::size_t tensor, std::int64_t begin, std::span<float> values) {
      source.read(tensor, begin, values);
      const std::string& name = tensors[tensor].name;
      const bool norm = name.ends_with("norm.weight") ||
                        (name.find("ln_") != std::string::npos && name.ends_with(".weight"));
      if (!norm) return;
      for (const std::int64_t feature : {3, 40, 41, 100, 177, 250}) {
        values[static_cast<std::size_t>(feature - begin)] *= factor;
      }
    });
    const std::vector<std::uint32_t> tokens = random_prompt(kTokens, 300, 8);
    const InferenceModel::Part part{model.cache().open(), tokens, kTokens};
    model.forward(std::span(&part, 1));
    std::vector<float> all;
    for (std::int64_t i = 0; i < kTokens; ++i) {
      const auto row = model.logits(i);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  /// Of logits from those of fp32.
  double distance(float factor, DType dtype, WeightFormat format) const {
    const std::vector<float> exact = logits(factor, DType::fp32, WeightFormat::plain);
    const std::vector<float> found = logits(factor, dtype, format);
    return relative_distance(found, exact);
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_.path("model/");
};

// Where outliers make a model more sensitive, they do so to the rounding of bf16 too.
TEST_P(Outliers, LeaveLogitsAsNearAsBesideBf16) {
  for (const float factor : {1.0F, 10.0F, 100.0F}) {
    const double bf16 = distance(factor, DType::bf16, WeightFormat::plain);
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      const double int8 = distance(factor, dtype, WeightFormat::int8);
      fmt::print("times {}: int8 beside {} {:.1f} times as far as bf16\n", factor, name_of(dtype),
                 int8 / bf16);
      EXPECT_LT(int8, 4 * bf16) << "times " << factor;
    }
  }
}

/// y = x W^T in fp32, of one row of x.
std::vector<float> product(const std::vector<float>& weights, std::vector<float> x,
                           WeightFormat format) {
  const auto device = cpu::open();
  const auto ops = make_inference_ops(*device);
  const auto in = std::ssize(x);
  const WeightShape shape{in, std::ssize(weights) / in, WeightLayout::out_in, DType::fp32, format};
  const Buffer weight =
      device->allocate(ops->weight_bytes(shape), DType::u8, MemoryClass::parameters, "weight");
  ops->pack(shape, 0, weights, weight.view());
  const std::int64_t padded = ops->padded_rows(1);
  x.resize(static_cast<std::size_t>(padded * in));
  std::vector<float> y(static_cast<std::size_t>(padded * shape.out));
  ops->prepare(shape, 1);
  ops->allocate_scratch();
  const auto view = [&](std::vector<float>& values) {
    return View(values.data(), std::ssize(values), DType::fp32, device.get());
  };
  ops->linear({shape, weight.view()}, 1, view(x), View(), view(y));
  device->compute().synchronize();
  y.resize(static_cast<std::size_t>(shape.out));
  return y;
}

// Of 4,096 inputs six are `factor` times as large.
TEST(OutliersOfAProduct, CostActivationsOf8BitsWhatAThresholdSavesAndWeightsOf8BitsNothing) {
  constexpr std::int64_t kIn = 4096;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> weights(static_cast<std::size_t>(kIn * 64));
  for (float& weight : weights) weight = 0.02F * normal(random);
  std::vector<float> ordinary(static_cast<std::size_t>(kIn));
  for (float& value : ordinary) value = normal(random);
  for (const float factor : {1.0F, 100.0F}) {
    std::vector<float> x = ordinary;
    for (const std::size_t i : {7U, 600U, 1234U, 2000U, 3333U, 4000U}) x[i] = factor;
    const std::vector<float> exact = product(weights, x, WeightFormat::plain);
    const double codes = relative_distance(product(weights, x, WeightFormat::int8), exact);
    EXPECT_LT(codes, 0.012) << "times " << factor;
    float largest = 0;
    for (const float value : x) largest = std::max(largest, std::abs(value));
    for (float& value : x) value = std::nearbyint(value / largest * 127) * largest / 127;
    const double rounded = relative_distance(product(weights, x, WeightFormat::plain), exact);
    fmt::print("times {}: int8 {:.1f} %, activations in 8 bits {:.1f} %\n", factor, 100 * codes,
               100 * rounded);
    EXPECT_EQ(rounded < 0.012, factor == 1) << rounded;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Outliers, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "gpt2" : "llama");
});

}  // namespace
}  // namespace zero::testing
