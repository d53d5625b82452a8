// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Answers beside those of Hugging Face's transformers (make_generation_reference.py).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "checkpoint/hf/safetensors.h"
#include "inference/generator.h"
#include "inference/inference_model.h"

namespace zero::testing {
namespace {

class GenerationReference : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = std::string(ZERO_REFERENCE) + "/" + GetParam();
  const nlohmann::json record_ = [this] {
    std::ifstream file(folder_ + "/reference.json");
    return nlohmann::json::parse(file);
  }();
  const std::vector<std::uint32_t> prompt_ = record_.at("prompt").get<std::vector<std::uint32_t>>();
  const std::unique_ptr<Device> device_ = cpu::open({.threads = 2});
};

TEST_P(GenerationReference, LogitsOfEveryPositionAreWithinATenThousandth) {
  const auto count = static_cast<std::int64_t>(prompt_.size());
  const auto model = open_inference_model(*device_, folder_, {.logit_rows = count});
  const InferenceModel::Part part{model->cache().open(), prompt_, count};
  model->forward(std::span(&part, 1));
  const SafetensorsReader file(folder_ + "/logits.safetensors");
  const FileTensor* tensor = file.find("logits");
  ASSERT_NE(tensor, nullptr);
  std::vector<float> expected(static_cast<std::size_t>(count * model->vocabulary()));
  file.read(*tensor, 0, std::as_writable_bytes(std::span(expected)));
  for (std::int64_t row = 0; row < count; ++row) {
    for (std::int64_t i = 0; i < model->vocabulary(); ++i) {
      ASSERT_NEAR(model->logits(row)[static_cast<std::size_t>(i)],
                  expected[static_cast<std::size_t>(row * model->vocabulary() + i)], 1e-4)
          << "position " << row << ", token " << i;
    }
  }
}

TEST_P(GenerationReference, GreedyTokensAreEqual) {
  const auto expected = record_.at("greedy").get<std::vector<std::uint32_t>>();
  ASSERT_EQ(expected.size(), 200U);
  const auto model = open_inference_model(*device_, folder_, {.requests = 2, .rows = 16});
  Generator generator(*model);
  std::vector<std::uint32_t> found;
  generator.submit({.prompt = prompt_, .max_tokens = 200, .sampling = {}},
                   {.on_token =
                        [&](const GeneratedToken& token) {
                          found.push_back(token.id);
                          return Flow::more;
                        },
                    .on_end = [](const GenerationEnd&) {}});
  while (!generator.idle()) generator.step();
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Families, GenerationReference,
                         ::testing::Values("gpt2", "llama", "qwen2", "qwen3", "gemma3", "mistral",
                                           "qwen2_window", "mistral_window"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace zero::testing
