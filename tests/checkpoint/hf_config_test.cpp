// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// config.json: what is read of it, what is refused by name, and what is carried over.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/checkpoint/tensor_files.h"
#include "tests/model/training_harness.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json recorded_config(const std::string& folder) {
  return json::parse(file_bytes(recorded(folder) + "/config.json"));
}

class HuggingFaceConfig : public ::testing::Test {
 protected:
  DecoderShape read(const json& config) {
    write_bytes(scratch_.path("config.json"), config.dump());
    return read_hf_config(scratch_.path());
  }
  // What is said about `config` with one field changed.
  std::string refusal(json config, const char* field, const json& value) {
    config[field] = value;
    return error_of([&] { read(config); });
  }
  Scratch scratch_;
  json llama_ = recorded_config("llama_tiny");
  json qwen2_ = recorded_config("qwen2_tiny");
};

TEST_F(HuggingFaceConfig, Transformers4And5SayTheSame) {
  json older = llama_;
  json scaling = older["rope_parameters"];
  older.erase("rope_parameters");
  older["rope_theta"] = scaling["rope_theta"];
  scaling.erase("rope_theta");
  older["rope_scaling"] = scaling;
  EXPECT_EQ(hf_config_text(read(older)), hf_config_text(read(llama_)));
  const auto config = read(older);
  EXPECT_EQ(config.rotary->theta, 200);
  EXPECT_EQ(config.rotary->scaling->factor, 4);
  EXPECT_EQ(config.rotary->scaling->original_context, 32);
  EXPECT_EQ(config.head_width, 8);
  EXPECT_EQ(config.head, DecoderShape::Head::separate);
  older.erase("rope_scaling");
  older.erase("head_dim");
  older.erase("num_key_value_heads");
  older["torch_dtype"] = "float16";
  const auto first = read(older);
  EXPECT_FALSE(first.rotary->scaling.has_value());
  EXPECT_EQ(first.kv_heads, 4);
  EXPECT_EQ(first.head_width, 6);
}

TEST_F(HuggingFaceConfig, MistralIsLlamaWithAWindowInEveryLayer) {
  json mistral = llama_;
  mistral["architectures"] = {"MistralForCausalLM"};
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(hf_config_text(read(mistral)), hf_config_text(read(llama_)));
  for (const std::int64_t window : {1, 16, 64, 65}) {
    mistral["sliding_window"] = window;
    const DecoderShape shape = read(mistral);
    EXPECT_EQ(shape.context, 64);
    EXPECT_EQ(shape.window, window);
    EXPECT_TRUE(shape.local_layers.empty());
    const json saved = json::parse(hf_config_text(shape));
    EXPECT_EQ(saved["architectures"], json{"MistralForCausalLM"});
    EXPECT_EQ(saved["model_type"], "mistral");
    EXPECT_EQ(saved["sliding_window"], window);
  }
  EXPECT_THAT(refusal(mistral, "sliding_window", 0),
              HasSubstr("config.json: sliding_window: found 0, expected null or at least 1"));
  EXPECT_THAT(refusal(mistral, "sliding_window", std::int64_t{1} << 40),
              HasSubstr("model.window is 1099511627776, expected 1 to "));
  mistral.erase("sliding_window");
  EXPECT_EQ(read(mistral).window, 4096) << "transformers' default";
}

TEST_F(HuggingFaceConfig, SomeLayersOfMinistralAndQwen2AreLocal) {
  json ministral = llama_;
  ministral["architectures"] = {"MinistralForCausalLM"};
  ministral["sliding_window"] = 16;
  EXPECT_EQ(json::parse(hf_config_text(read(ministral)))["model_type"], "mistral");
  ministral["layer_types"] = {"sliding_attention", "full_attention"};
  const json saved = json::parse(hf_config_text(read(ministral)));
  EXPECT_EQ(saved["architectures"], json{"MinistralForCausalLM"});
  EXPECT_EQ(saved["layer_types"], ministral["layer_types"]);
  EXPECT_EQ(saved["sliding_window"], 16);
  // transformers reads a mistral with layer_types as a ministral.
  json mistral = ministral;
  mistral["architectures"] = {"MistralForCausalLM"};
  mistral["model_type"] = "mistral";
  EXPECT_EQ(json::parse(hf_config_text(read(mistral))), saved);
  mistral["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(read(mistral).window, 0);

  qwen2_["sliding_window"] = 16;
  qwen2_.erase("layer_types");
  const std::int64_t layers = qwen2_["num_hidden_layers"];
  ASSERT_EQ(layers, 2);
  const auto windows = [&](bool used, std::int64_t full) {
    qwen2_["use_sliding_window"] = used;
    qwen2_["max_window_layers"] = full;
    const DecoderShape shape = read(qwen2_);
    EXPECT_EQ(shape.context, qwen2_["max_position_embeddings"]);
    return std::vector{shape.window_of(0), shape.window_of(1)};
  };
  using Windows = std::vector<std::int64_t>;
  EXPECT_EQ(windows(false, 0), (Windows{0, 0}));
  EXPECT_EQ(windows(true, 2), (Windows{0, 0})) << "all layers are full";
  EXPECT_EQ(windows(true, 1), (Windows{0, 16}));
  const json late = json::parse(hf_config_text(read(qwen2_)));
  EXPECT_EQ(late["max_window_layers"], 1);
  EXPECT_EQ(late["use_sliding_window"], true);
  EXPECT_EQ(windows(true, 0), (Windows{16, 16}));
  EXPECT_EQ(json::parse(hf_config_text(read(qwen2_)))["max_window_layers"], 0);
  qwen2_["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(windows(true, 0), (Windows{0, 0}));
  qwen2_["layer_types"][0] = "sliding_attention";
  EXPECT_EQ(windows(true, 2), (Windows{16, 0}));
  EXPECT_EQ(json::parse(hf_config_text(read(qwen2_)))["layer_types"], qwen2_["layer_types"]);
  EXPECT_THAT(refusal(qwen2_, "layer_types", {"sliding_attention"}),
              HasSubstr("layer_types: found the types of 1 layers, expected those of all 2"));
}

// As transformers' class: it has no window, whatever other fields say.
TEST_F(HuggingFaceConfig, ALlamaHasNoWindow) {
  llama_["sliding_window"] = 16;
  EXPECT_EQ(read(llama_).window, 0);
  EXPECT_THAT(refusal(llama_, "layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("layer_types: found \"sliding_attention\", expected \"full_attention\": "
                        "LlamaForCausalLM has no window"));
}

TEST_F(HuggingFaceConfig, TurnsThatChangeNoPositionAreTaken) {
  llama_.erase("rope_parameters");
  const std::string plain = hf_config_text(read(llama_));
  for (const json& scaling :
       {json{{"type", "linear"}, {"factor", 1.0}}, json{{"type", "dynamic"}, {"factor", 4.0}},
        json{{"rope_type", "yarn"}, {"factor", 1}, {"beta_fast", 32}, {"beta_slow", 1}},
        json{{"type", "dynamic"}, {"rope_type", "default"}}}) {
    llama_["rope_scaling"] = scaling;
    EXPECT_EQ(hf_config_text(read(llama_)), plain) << scaling;
  }
  EXPECT_THAT(refusal(llama_, "rope_scaling", {{"type", "linear"}, {"factor", 4.0}}),
              HasSubstr("rope_scaling.factor: found 4 with rope_type \"linear\", expected 1"));
  EXPECT_THAT(refusal(llama_, "rope_scaling",
                      {{"type", "dynamic"}, {"original_max_position_embeddings", 7}}),
              HasSubstr("rope_scaling.original_max_position_embeddings: found 7, expected 64"));
}

TEST_F(HuggingFaceConfig, Qwen3IsLlamaWithNormsOfHeads) {
  const json qwen3 = recorded_config("qwen3_tiny");
  const DecoderShape shape = read(qwen3);
  EXPECT_TRUE(shape.head_norms);
  EXPECT_EQ(shape.biases, DecoderShape::Biases::none);
  const json saved = json::parse(hf_config_text(shape));
  EXPECT_EQ(saved.at("architectures"), json({"Qwen3ForCausalLM"}));
  EXPECT_EQ(saved.at("model_type"), "qwen3");
  json older = qwen3;
  older.erase("head_dim");
  EXPECT_EQ(read(older).head_width, 128) << "transformers' default";
  EXPECT_THAT(refusal(qwen3, "attention_bias", true),
              HasSubstr("attention_bias: found true, expected false"));
}

TEST_F(HuggingFaceConfig, Gemma3HasItsPatternAnglesAndScales) {
  const json gemma3 = recorded_config("gemma3_tiny");
  const DecoderShape shape = read(gemma3);
  EXPECT_EQ(shape.norm, NormKind::rms_plus_one);
  EXPECT_TRUE(shape.branch_norms && shape.head_norms);
  EXPECT_EQ(shape.embedding_scale, std::sqrt(24.0));
  EXPECT_EQ(shape.score_scale, 1 / std::sqrt(12.0));
  EXPECT_EQ(shape.rotary->theta, 1000);
  EXPECT_EQ(shape.local_rotary->theta, 100);
  EXPECT_EQ(shape.window_of(0), 9);
  EXPECT_EQ(shape.window_of(1), 0);
  EXPECT_EQ(json::parse(hf_config_text(shape)).at("query_pre_attn_scalar"), 12);
  json older = gemma3;  // as transformers 4 wrote it
  for (const char* field : {"rope_parameters", "layer_types"}) older.erase(field);
  older["rope_theta"] = 1000;
  older["rope_local_base_freq"] = 100;
  older["sliding_window_pattern"] = 2;
  older["cache_implementation"] = "hybrid";
  EXPECT_EQ(hf_config_text(read(older)), hf_config_text(shape));
  older["sliding_window_pattern"] = 1;
  const DecoderShape global = read(older);
  EXPECT_EQ(global.window, 0);
  EXPECT_FALSE(global.local_rotary.has_value());
  EXPECT_THAT(refusal(gemma3, "final_logit_softcapping", 30.0),
              HasSubstr("final_logit_softcapping: found 30.0, expected null: nothing is capped"));
  EXPECT_THAT(refusal(gemma3, "attn_logit_softcapping", 50.0),
              HasSubstr("attn_logit_softcapping: found 50.0, expected null"));
  EXPECT_THAT(refusal(gemma3, "hidden_activation", "gelu"),
              HasSubstr("hidden_activation: found \"gelu\", expected \"gelu_pytorch_tanh\""));
  EXPECT_THAT(refusal(gemma3, "use_bidirectional_attention", true),
              HasSubstr("use_bidirectional_attention: found true, expected false"));
  EXPECT_THAT(refusal(gemma3, "sliding_window", nullptr),
              HasSubstr("sliding_window: found 0, expected at least 1"));
  EXPECT_THAT(refusal(gemma3, "rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}}),
              HasSubstr("rope_scaling.rope_type: found \"yarn\", expected \"default\" or "
                        "\"linear\""));
  EXPECT_THAT(refusal(gemma3, "architectures", {"Gemma3ForConditionalGeneration"}),
              HasSubstr("expected one of"));
  json vision = gemma3;
  vision["vision_config"] = {{"hidden_size", 8}};
  vision["text_config"] = {{"model_type", "gemma3_text"}};
  EXPECT_THAT(refusal(vision, "architectures", {"Gemma3ForConditionalGeneration"}),
              HasSubstr("config.json: vision_config: found a model of images, expected one of text "
                        "alone, such as Gemma3ForCausalLM"));
  vision["text_config"] = {{"model_type", "qwen3_vl_text"}};  // of no class that is computed
  EXPECT_THAT(refusal(vision, "architectures", {"Qwen3VLForConditionalGeneration"}),
              HasSubstr("architectures: found [\"Qwen3VLForConditionalGeneration\"], a model of "
                        "images, expected one of \"GPT2LMHeadModel\""));
}

// As Gemma 3 of 4 billion parameters and more: 8 times the context, of global layers alone.
TEST_F(HuggingFaceConfig, Gemma3sGlobalAnglesAreStretched) {
  const json gemma3 = recorded_config("gemma3_tiny");
  json older = gemma3;
  for (const char* field : {"rope_parameters", "layer_types"}) older.erase(field);
  older["sliding_window_pattern"] = 2;
  older["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  json newer = gemma3;
  newer["rope_parameters"]["full_attention"]["rope_type"] = "linear";
  newer["rope_parameters"]["full_attention"]["factor"] = 8.0;
  for (const json& config : {older, newer}) {
    const DecoderShape shape = read(config);
    EXPECT_EQ(shape.rotary->linear_factor, 8);
    EXPECT_EQ(shape.local_rotary->linear_factor, 1);
    const json saved = json::parse(hf_config_text(shape));
    EXPECT_EQ(saved.at("rope_scaling"), (json{{"rope_type", "linear"}, {"factor", 8.0}}));
    EXPECT_EQ(hf_config_text(read(saved)), saved.dump(2) + "\n");
    EXPECT_EQ(shape.family->to_section(shape).at("rope_factor"), 8);
  }
  newer["rope_parameters"]["sliding_attention"]["rope_type"] = "linear";
  newer["rope_parameters"]["sliding_attention"]["factor"] = 2.0;
  EXPECT_THAT(error_of([&] { read(newer); }),
              HasSubstr("rope_parameters.sliding_attention.factor: found 2, expected 1"));
}

TEST_F(HuggingFaceConfig, OtherClassesOfAModelAreToldWhatToWrite) {
  const std::pair<const char*, const char*> cases[] = {{"Qwen3Model", "Qwen3ForCausalLM"},
                                                       {"FSDPQwen3ForCausalLM", "Qwen3ForCausalLM"},
                                                       {"GPT2Model", "GPT2LMHeadModel"},
                                                       {"Gemma3TextModel", "Gemma3ForCausalLM"}};
  for (const auto& [found, known] : cases) {
    EXPECT_THAT(refusal(llama_, "architectures", json::array({found})),
                HasSubstr(std::string("architectures: found [\"") + found +
                          "\"]; set architectures to [\"" + known + "\"]"));
  }
}

TEST_F(HuggingFaceConfig, IsCausal) {
  const std::string text = hf_config_text(read(llama_));
  llama_["is_causal"] = true;
  EXPECT_EQ(hf_config_text(read(llama_)), text);
  EXPECT_THAT(refusal(llama_, "is_causal", false),
              HasSubstr("is_causal: found false, expected true: no position sees a later one"));
}

TEST_F(HuggingFaceConfig, AllUnknownFieldsAreNamedInOneMessage) {
  EXPECT_THAT(
      refusal(llama_, "logit_scale", 0.5),
      HasSubstr("logit_scale: found 0.5, expected no field of that name: what it changes is "
                "not known here; take it out if the model does not depend on it"));
  llama_["logit_scale"] = 0.5;
  llama_["soft\x1b[cap"] = 30;
  llama_["experts"] = std::vector(100, 1);
  llama_["nothing"] = nullptr;
  llama_["off"] = false;
  llama_["empty"] = json::object();
  const std::string text = error_of([&] { read(llama_); });
  EXPECT_THAT(text, HasSubstr("config.json: experts: found [1,1,1"));
  EXPECT_THAT(text,
              HasSubstr("...; logit_scale: found 0.5; soft?[cap: found 30, expected no fields "
                        "of these names: what they change is not known here; take those out"));
  for (int i = 0; i < 60; ++i) llama_["x" + std::to_string(i)] = 1;
  EXPECT_THAT(error_of([&] { read(llama_); }), HasSubstr("; and 13 others, expected no fields"));
}

TEST_F(HuggingFaceConfig, ASavedOneHasEveryFieldOfItsSource) {
  llama_["architectures"] = {"MistralForCausalLM"};
  llama_["model_type"] = "mistral";
  llama_["sliding_window"] = 16;
  llama_["eos_token_id"] = {7, 9};
  llama_["pad_token_id"] = 3;
  llama_["unsloth_fixed"] = true;
  llama_["torch_dtype"] = "bfloat16";
  write_bytes(scratch_.path("config.json"), llama_.dump());
  const std::string saved = carried_config(scratch_.path());
  llama_["torch_dtype"] = "float32";
  if (llama_.contains("dtype")) llama_["dtype"] = "float32";
  EXPECT_EQ(json::parse(saved), llama_);
  EXPECT_EQ(hf_config_text(parse_hf_config("saved", saved)), hf_config_text(read(llama_)));
}

TEST_F(HuggingFaceConfig, WhatIsNotComputedIsNamed) {
  EXPECT_THAT(refusal(llama_, "architectures", {"GemmaForCausalLM"}),
              HasSubstr("config.json: architectures: found [\"GemmaForCausalLM\"], expected one of "
                        "\"GPT2LMHeadModel\", \"LlamaForCausalLM\""));
  EXPECT_THAT(refusal(llama_, "hidden_act", "gelu"),
              HasSubstr("hidden_act: found \"gelu\", expected \"silu\""));
  EXPECT_THAT(refusal(llama_, "attention_bias", true),
              HasSubstr("attention_bias: found true, expected false"));
  EXPECT_THAT(refusal(llama_, "rope_parameters", {{"rope_type", "longrope"}, {"factor", 2.0}}),
              HasSubstr("rope_parameters.rope_type: found \"longrope\", expected \"default\" or "
                        "\"llama3\""));
  EXPECT_THAT(refusal(llama_, "pruned_heads", {{"0", {1}}}),
              HasSubstr("pruned_heads: found {\"0\":[1]}, expected {}: every head is computed"));
  EXPECT_THAT(refusal(llama_, "rope_parameters", {{"rope_type", "llama3"}}),
              HasSubstr("rope_parameters.factor is missing; expected a number"));
  EXPECT_THAT(refusal(llama_, "logit_scale", 0.5),
              HasSubstr("logit_scale: found 0.5, expected no field of that name"));
  EXPECT_THAT(refusal(llama_, "hidden_size", "24"),
              HasSubstr("hidden_size: found \"24\", expected a whole number"));
  EXPECT_THAT(refusal(llama_, "hidden_size", std::uint64_t{1} << 63U),
              HasSubstr("hidden_size: found 9223372036854775808, expected a whole number of at "
                        "most 9223372036854775807"));
  EXPECT_THAT(refusal(llama_, "rms_norm_eps", "1"), HasSubstr("rms_norm_eps: found \"1\""));
  EXPECT_THAT(refusal(llama_, "tie_word_embeddings", 1),
              HasSubstr("tie_word_embeddings: found 1, expected true or false"));
  EXPECT_THAT(refusal(llama_, "rope_parameters", 1),
              HasSubstr("rope_parameters: found 1, expected an object"));
  EXPECT_THAT(refusal(llama_, "num_key_value_heads", 3),
              HasSubstr("config.json: model.heads is 4, expected a multiple of model.kv_heads"));
  EXPECT_THAT(refusal(qwen2_, "layer_types", {"chunked_attention"}),
              HasSubstr("layer_types: found \"chunked_attention\", expected \"full_attention\""));
  EXPECT_THAT(refusal(qwen2_, "num_key_value_heads", nullptr),
              HasSubstr("num_key_value_heads is missing; expected a whole number"));
  json gpt2 = json::parse(hf_config_text(tiny_gpt2()));
  EXPECT_THAT(refusal(gpt2, "activation_function", "relu"),
              HasSubstr("activation_function: found \"relu\", expected \"gelu_new\""));
  EXPECT_THAT(refusal(gpt2, "activation_function", 1), HasSubstr("found 1, expected a text"));
  EXPECT_THAT(refusal(gpt2, "n_inner", 50), HasSubstr("n_inner: found 50, expected 48"));
  EXPECT_THAT(refusal(gpt2, "n_embd", std::int64_t{1} << 62), HasSubstr("model.width is "));
  EXPECT_THAT(refusal(llama_, "head_dim", std::int64_t{1} << 62),
              HasSubstr("model.head_width is 4611686018427387904, expected 1 to "));
  EXPECT_THAT(error_of([&] { read(json::array()); }), HasSubstr("is not a JSON object"));
  // As edited by hand, and as Python writes it.
  for (const auto& [text, why] : {std::pair{"{\"a\": 1,\n}", "at line 2, column 1: "},
                                  std::pair{"{\"a\": [Infinity]}", "at line 1, column 8: "},
                                  std::pair{"{\"a\": 1e999}", "number overflow parsing '1e999'"}}) {
    EXPECT_THAT(error_of([&] { parse_hf_config("model/config.json", text); }),
                AllOf(HasSubstr("config.json: is not a JSON object of at most 100 levels: "),
                      HasSubstr(why)));
  }
  EXPECT_THAT(error_of([&] { read_hf_config(scratch_.path("nowhere")); }),
              HasSubstr("nowhere/config.json: cannot be read"));
}

}  // namespace
}  // namespace zero::testing
