// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// For each row of families(), of which nothing but the row is known here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "architecture/family.h"
#include "inference/inference_model.h"
#include "inference/model_folder.h"
#include "tests/inference/saved_model.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

/// Sizes that are multiples of nothing, for the keys that the family has.
DecoderShape small_shape(const Family& family) {
  nlohmann::json section{{"family", family.name}};
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"layers", 2},   {"width", 60},      {"heads", 6},       {"context", 150},
      {"kv_heads", 2}, {"head_width", 14}, {"vocabulary", 97}, {"intermediate", 90}};
  for (const auto& [key, size] : sizes) {
    if (std::ranges::find(family.keys, key) != family.keys.end()) section[key] = size;
  }
  return decoder_shape(section);
}

std::vector<DecoderShape> small_shapes() {
  std::vector<DecoderShape> shapes{small_llama(),
                                   small_qwen2(),
                                   small_qwen3(),
                                   small_llama({{"window", 33}}),
                                   small_llama({{"window", 17}, {"local_layers", "0"}}),
                                   as_qwen2(small_llama({{"window", 70}, {"local_layers", "1"}})),
                                   as_qwen3(small_llama({{"window", 40}, {"local_layers", "0"}})),
                                   small_gemma3()};
  for (const Family* family : families()) shapes.push_back(small_shape(*family));
  return shapes;
}

class Families : public ::testing::TestWithParam<DecoderShape> {};

TEST_P(Families, TrainingAndInferenceGiveTheSameLogits) {
  constexpr std::int64_t kTokens = 131;
  const DecoderShape& shape = GetParam();
  const Scratch scratch;
  const std::string folder = scratch.path("model/");
  const Batch batch = Batch::random(kTokens, shape.vocabulary, 3);
  const std::vector<std::uint32_t> tokens(batch.inputs.begin(), batch.inputs.end());
  std::map<std::int64_t, std::vector<float>> expected;
  with_saved_model(shape, folder, kTokens, [&](Training& training) {
    EXPECT_EQ(training.engine.parameter_count(), shape.parameter_count());
    for (const std::int64_t position : {0, 1, 15, 16, 63, 64, 100, 130}) {
      expected[position] = training.next_logits(batch, position);
    }
  });
  for (const int ranks : {1, 2, 4}) {
    local::run(ranks, [&](Communicator& world) {
      Mesh mesh(world, {1, 1, ranks});
      const auto device = cpu::open();
      const auto model = open_inference_model(
          *device, folder, {.rows = kTokens, .logit_rows = kTokens}, ranks == 1 ? nullptr : &mesh);
      const InferenceModel::Part part{model->cache().open(), tokens, kTokens};
      model->forward(std::span(&part, 1));
      for (const auto& [position, logits] : expected) {
        const auto found = model->logits(position);
        ASSERT_EQ(found.size(), logits.size());
        for (std::size_t i = 0; i < logits.size(); ++i) {
          ASSERT_NEAR(found[i], logits[i], ranks == 1 ? 2e-5 : 1e-4)
              << ranks << " ranks, position " << position << ", token " << i;
        }
      }
    });
  }
}

// What only some families have, and no file of this one says.
TEST(LocalRotary, TrainingAndInferenceTurnAndScaleTheSame) {
  constexpr std::int64_t kTokens = 60;
  const DecoderShape shape = with_scales(small_llama({{"window", 20}, {"local_layers", "0"}}));
  const Scratch scratch;
  const Batch batch = Batch::random(kTokens, shape.vocabulary, 3);
  const std::vector<std::uint32_t> tokens(batch.inputs.begin(), batch.inputs.end());
  std::map<std::int64_t, std::vector<float>> expected;
  with_saved_model(shape, scratch.path("model/"), kTokens, [&](Training& training) {
    for (const std::int64_t position : {0, 19, 20, 59}) {
      expected[position] = training.next_logits(batch, position);
    }
  });
  const ModelFolder files(scratch.path("model/"));
  for (const int ranks : {1, 2}) {
    local::run(ranks, [&](Communicator& world) {
      Mesh mesh(world, {1, 1, ranks});
      const auto device = cpu::open();
      InferenceModel model(*device, shape, {.rows = kTokens, .logit_rows = kTokens},
                           ranks == 1 ? nullptr : &mesh);
      model.load(files.source());
      const InferenceModel::Part part{model.cache().open(), tokens, kTokens};
      model.forward(std::span(&part, 1));
      for (const auto& [position, logits] : expected) {
        const auto found = model.logits(position);
        for (std::size_t i = 0; i < logits.size(); ++i) {
          ASSERT_NEAR(found[i], logits[i], 1e-4)
              << ranks << " ranks, position " << position << ", token " << i;
        }
      }
    });
  }
}

TEST_P(Families, EachFormOfAShapeGivesItBack) {
  const DecoderShape& shape = GetParam();
  const Family& family = *shape.family;
  const std::string text = hf_config_text(shape);
  EXPECT_EQ(hf_config_text(parse_hf_config("config.json", text)), text);
  nlohmann::json section = family.to_section(shape);
  for (const auto& [key, value] : section.items()) {
    EXPECT_NE(std::ranges::find(family.keys, key), family.keys.end()) << key;
  }
  section["family"] = family.name;
  EXPECT_EQ(hf_config_text(decoder_shape(section)), text);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Families, ::testing::ValuesIn(small_shapes()),
                         [](const auto& test) {
                           return fmt::format("{}{}", test.param.family->name, test.index);
                         });

}  // namespace
}  // namespace zero::testing
