// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "architecture/family.h"
#include "architecture/local_layers.h"
#include "base/error.h"
#include "launch/config/train_config.h"
#include "launch/train/plan.h"
#include "launch/train/run_device.h"
#include "tests/launch/config_with.h"
#include "tests/scratch.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kLlama{"model.family=llama", "model.intermediate=96",
                                      "model.kv_heads=1"};

std::vector<std::string> llama(const std::vector<std::string>& more) {
  std::vector<std::string> all = kLlama;
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(ModelSection, ALlamaIsGivenBySizesAndTheRestIsShown) {
  const TrainConfig config =
      config_with(llama({"model.rope_theta=5e5", "model.head=tied", "model.rope_scaling.factor=8",
                         "model.rope_scaling.original_max_position_embeddings=16"}));
  const auto& model = config.model;
  EXPECT_EQ(model.kv_heads, 1);
  EXPECT_EQ(model.head_width, 16);
  EXPECT_EQ(model.head, DecoderShape::Head::tied);
  EXPECT_EQ(model.rotary->theta, 5e5);
  EXPECT_EQ(model.rotary->scaling->original_context, 16);
  EXPECT_EQ(config.values.integer("model.head_width"), 16);
  EXPECT_EQ(config.values.at("model.qkv_bias").source, "default of llama");
  EXPECT_EQ(config.values.number("model.rope_scaling.high_freq_factor"), 4);
  const auto plain = config_with(llama({"model.qkv_bias=true"})).model;
  EXPECT_FALSE(plain.rotary->scaling.has_value());
  EXPECT_EQ(plain.biases, DecoderShape::Biases::qkv);
}

TEST(ModelSection, ANameOfALlamaGivesItsFamilyAndSizes) {
  const auto named = [](const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"model={\"name\": \"" + name + "\"}", "data.sequence_length=32"};
    all.insert(all.end(), more.begin(), more.end());
    return config_with(all);
  };
  const auto count = [&](const std::string& name) { return named(name).model.parameter_count(); };
  EXPECT_EQ(count("llama-7b"), 6'738'415'616);
  EXPECT_EQ(count("llama-13b"), 13'015'864'320);
  EXPECT_EQ(count("llama-33b"), 32'528'943'616);
  EXPECT_EQ(count("llama-65b"), 65'285'660'672);
  EXPECT_EQ(count("llama-3.1-8b"), 8'030'261'248);
  EXPECT_EQ(count("llama-3.1-70b"), 70'553'706'496);
  const TrainConfig config = named("llama-3.1-8b", {"model.layers=2"});
  EXPECT_EQ(config.values.text("model.family"), "llama");
  EXPECT_EQ(config.values.at("model.family").source, "model llama-3.1-8b");
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.rotary->theta, 5e5);
  EXPECT_EQ(config.model.rotary->scaling->factor, 8);
  EXPECT_EQ(config.model.context, 131072);
  EXPECT_EQ(decoder_shape({{"name", "llama-7b"}}).intermediate, 11008);
  EXPECT_THAT(refusal_with({"model={\"name\": \"llama-7b\", \"family\": \"gpt2\"}"}),
              HasSubstr("model.name \"llama-7b\" is a llama, model.family is \"gpt2\""));
}

TEST(ModelSection, AWindowIsOfAllLayersOrOfThoseNamed) {
  const auto windows = [](const std::vector<std::string>& keys) {
    std::vector<std::string> all = llama(keys);
    all.emplace_back("model.layers=5");
    const DecoderShape model = config_with(all).model;
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < model.layers; ++i) found.push_back(model.window_of(i));
    return found;
  };
  using Windows = std::vector<std::int64_t>;
  EXPECT_EQ(windows({}), (Windows{0, 0, 0, 0, 0}));
  EXPECT_EQ(windows({"model.window=8"}), (Windows{8, 8, 8, 8, 8}));
  EXPECT_EQ(windows({"model.window=8", R"(model.local_layers="3")"}), (Windows{0, 0, 0, 8, 0}));
  EXPECT_EQ(windows({"model.window=8", R"(model.local_layers="0-1,3-4")"}),
            (Windows{8, 8, 0, 8, 8}));
  const TrainConfig shown =
      config_with(llama({"model.layers=5", "model.window=8", R"(model.local_layers="0,1,4")"}));
  EXPECT_EQ(local_layers_text(shown.model), "0-1,4");
  EXPECT_TRUE(config_with(llama({})).values.is_null("model.window"));
  EXPECT_THAT(refusal_with(llama({R"(model.local_layers="0")"})),
              HasSubstr("model.local_layers is given without model.window; give both or neither"));
  for (const char* wrong : {"5", "1-0", "1,1", "2,1", "0-", "-1", "a", "0,,1", "0, 1", "0-5"}) {
    EXPECT_THAT(
        refusal_with(llama({"model.layers=5", "model.window=8",
                            fmt::format(R"(model.local_layers="{}")", wrong)})),
        HasSubstr(fmt::format("model.local_layers: found \"{}\", expected ascending numbers "
                              "of layers from 0 to 4, as in \"0-4,6\"",
                              wrong)));
  }
  EXPECT_THAT(refusal_with(llama({"model.window=0"})), HasSubstr("model.window: found 0"));
}

TEST(ModelSection, AFolderGivesSizesAndWeights) {
  const Scratch folder;
  const DecoderShape expected = config_with(llama({"model.norm_epsilon=1e-6"})).model;
  folder.write("config.json", hf_config_text(expected));
  const std::string model = "model={\"hf\": \"" + folder.path() + "\"}";
  const TrainConfig config = config_with({model});
  EXPECT_EQ(hf_config_text(config.model), hf_config_text(expected));
  EXPECT_EQ(config.values.at("model.kv_heads").source, folder.path("config.json"));
  EXPECT_EQ(config.values.text("model.family"), "llama");
  EXPECT_EQ(config.run.init, folder.path());
  EXPECT_EQ(config_with({model, "run.init=none"}).run.init, "");
  EXPECT_EQ(config_with({model, "run.init=a.safetensors"}).run.init, "a.safetensors");
  EXPECT_THAT(refusal_with({model, "model.layers=3"}),
              HasSubstr("c.json: model.layers is given beside model.hf"));
  EXPECT_THAT(refusal_with({"model={\"hf\": \"" + folder.path("none") + "\"}"}),
              HasSubstr("none/config.json: cannot be read"));
}

TEST(ModelSection, WhatDoesNotBelongTogetherIsNamed) {
  EXPECT_THAT(refusal_with({"model.kv_heads=1"}),
              HasSubstr("c.json: model.kv_heads does not belong to model.family \"gpt2\""));
  EXPECT_THAT(refusal_with({"model.family=llama"}),
              HasSubstr("c.json: model.intermediate is missing: a model of the family llama"));
  EXPECT_THAT(refusal_with(llama({"model.kv_heads=3"})),
              HasSubstr("c.json: model: model.heads is 4, expected a multiple of model.kv_heads"));
  EXPECT_THAT(refusal_with(llama({"model.rope_scaling.low_freq_factor=2"})),
              HasSubstr("low_freq_factor is given without model.rope_scaling.factor"));
  EXPECT_THAT(refusal_with(llama({"model.rope_scaling.factor=2"})),
              HasSubstr("original_max_position_embeddings is missing"));
  EXPECT_THAT(refusal_with(llama({"model.name=gpt2-124m"})),
              HasSubstr("model.name \"gpt2-124m\" is a gpt2, model.family is \"llama\""));
}

// The sizes of Llama 3 8B: none of its memory is taken.
TEST(ModelSection, LlamasOfEightBillionArePlannedWithoutMemory) {
  const TrainConfig config =
      config_with({"model={\"family\": \"llama\", \"layers\": 32, \"width\": 4096, \"heads\": 32, "
                   "\"kv_heads\": "
                   "8, \"intermediate\": 14336, \"vocabulary\": 128256, \"context\": 8192, "
                   "\"rope_theta\": 5e5}",
                   "data.sequence_length=1024", "zero_optimization.stage=3", "bf16.enabled=true"},
                  8);
  const Plan plan = make_plan(config, BackendKind::local);
  EXPECT_EQ(plan.parameters, 8'030'261'248);
  const auto bytes = [&](MemoryClass c) { return at(plan.memory.ledger, c); };
  const std::int64_t shard = plan.parameters / 8;
  EXPECT_NEAR(static_cast<double>(bytes(MemoryClass::optimizer)), 12.0 * static_cast<double>(shard),
              1e-3 * 12.0 * static_cast<double>(shard));
  EXPECT_GT(bytes(MemoryClass::activations), std::int64_t{1} << 30);
}

}  // namespace
}  // namespace zero::testing
