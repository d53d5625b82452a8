// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/errors.h"
#include "tests/scratch.h"
#include "weights/hf/config.h"

namespace zero::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kPath = "model/config.json";

class QuantizationConfig : public ::testing::Test {
 protected:
  std::string refusal(const json& section) {
    json config = llama_;
    config["quantization_config"] = section;
    return error_of([&] { parse_hf_model(kPath, config.dump()); });
  }
  const json llama_ = json::parse(file_bytes(ZERO_RECORDED_FILES "/llama_tiny/config.json"));
};

TEST_F(QuantizationConfig, CodesAreOursAndOfReadersOfCodes) {
  const std::string text = quantized_config_text(kPath, llama_.dump(), "nf4", "bfloat16");
  const HfModel model = parse_hf_model(kPath, text);
  EXPECT_EQ(model.codes, "nf4");
  EXPECT_EQ(hf_config_text(model.shape), hf_config_text(parse_hf_config(kPath, llama_.dump())));
  EXPECT_EQ(parse_hf_model(kPath, llama_.dump()).codes, "");
  const json written = json::parse(text);
  EXPECT_EQ(written.value("dtype", written.value("torch_dtype", "")), "bfloat16");
  EXPECT_THAT(error_of([&] { parse_hf_config(kPath, text); }),
              HasSubstr("quantization_config: found codes of nf4, expected plain weights: only "
                        "zero_generate reads codes"));
  EXPECT_THAT(error_of([&] { quantized_config_text(kPath, text, "int8", "float32"); }),
              HasSubstr("found codes of nf4"));
  json later = json{{"quant_method", "zero"}, {"version", 2}, {"format", "nf4"}};
  EXPECT_THAT(refusal(later), HasSubstr("quantization_config.version: found 2, expected 1"));
  later = {{"quant_method", "zero"}, {"version", 1}, {"format", "int8"}, {"llm_int8_threshold", 6}};
  EXPECT_THAT(refusal(later),
              HasSubstr("quantization_config.llm_int8_threshold: found 6, expected none: "
                        "activations are never quantized here"));
}

TEST_F(QuantizationConfig, CodesOfOthersAreRefusedByName) {
  constexpr const char* kInstead =
      "expected codes that zero_generate --save-quantized wrote (quant_method \"zero\"), or of "
      "gptq "
      "or awq in 4 bits: take the folder from which these were made, and --weights int8, nf4 or q4";
  for (const char* method : {"exl2", "marlin", "fp8", "compressed-tensors", "auto-round"}) {
    EXPECT_THAT(refusal({{"quant_method", method}, {"bits", 4}, {"group_size", 128}}),
                HasSubstr(std::string("config.json: quantization_config: found ") + method + ", " +
                          kInstead));
  }
  EXPECT_THAT(refusal({{"quant_method", "bitsandbytes"},
                       {"load_in_4bit", true},
                       {"llm_int8_threshold", 6.0},
                       {"bnb_4bit_quant_type", "nf4"}}),
              EndsWith(std::string("found bitsandbytes in 4 bits, ") + kInstead));
  EXPECT_THAT(refusal({{"load_in_8bit", true}, {"llm_int8_threshold", 6.0}}),
              AllOf(HasSubstr(std::string("found bitsandbytes in 8 bits, ") + kInstead),
                    HasSubstr("; activations are never quantized here")));
  EXPECT_THAT(refusal(json::object()), HasSubstr("found no quant_method, expected codes"));
  EXPECT_THAT(refusal({{"quant_method", 3}}), HasSubstr("quant_method: found 3, expected a text"));
  EXPECT_THAT(refusal("int8"), HasSubstr("found \"int8\", expected an object"));
  json mlx = llama_;
  mlx["quantization"] = {{"group_size", 64}, {"bits", 4}};
  EXPECT_THAT(
      error_of([&] { parse_hf_model(kPath, mlx.dump()); }),
      HasSubstr("quantization: found {\"bits\":4,\"group_size\":64}, codes of MLX, expected "
                "plain weights: take the folder from which these were made"));
}

TEST_F(QuantizationConfig, CodesOfGptqAndAwqAreRead) {
  using Packing = GroupQuantization::Packing;
  const auto read = [&](const json& section) {
    json config = llama_;
    config["quantization_config"] = section;
    return parse_hf_model(kPath, config.dump());
  };
  // As AutoGPTQ, GPTQModel, AutoAWQ and transformers 5 write it.
  HfModel model = read({{"quant_method", "gptq"},
                        {"bits", 4},
                        {"group_size", 128},
                        {"damp_percent", 0.01},
                        {"desc_act", true},
                        {"static_groups", false},
                        {"modules_to_not_convert", {"lm_head"}},
                        {"sym", true},
                        {"true_sequential", true},
                        {"model_name_or_path", nullptr},
                        {"model_file_base_name", "model"},
                        {"is_marlin_format", false}});
  EXPECT_EQ(model.codes, "gptq");
  ASSERT_TRUE(model.groups.has_value());
  EXPECT_TRUE(model.groups->sorted);
  EXPECT_EQ(model.groups->packing, Packing::gptq);
  EXPECT_EQ(model.groups->group, 128);
  EXPECT_TRUE(model.groups->symmetric);
  model = read({{"quant_method", "gptq"},
                {"bits", 4},
                {"group_size", -1},
                {"sym", false},
                {"checkpoint_format", "gptq_v2"},
                {"format", "gptq_v2"},
                {"method", "gptq"},
                {"pack_dtype", "int32"},
                {"lm_head", false},
                {"dynamic", nullptr},
                {"meta", {{"quantizer", {"gptqmodel:7.7.0"}}}}});
  ASSERT_TRUE(model.groups.has_value());
  EXPECT_EQ(model.groups->packing, Packing::gptq_v2);
  EXPECT_EQ(model.groups->group, 0);
  EXPECT_FALSE(model.groups->symmetric);
  model = read({{"quant_method", "awq"},
                {"w_bit", 4},
                {"q_group_size", 64},
                {"zero_point", true},
                {"version", "GEMM"},
                {"modules_to_not_convert", {"lm_head"}}});
  EXPECT_EQ(model.codes, "awq");
  ASSERT_TRUE(model.groups.has_value());
  EXPECT_EQ(model.groups->packing, Packing::awq);
  EXPECT_EQ(model.groups->group, 64);
  EXPECT_FALSE(model.groups->symmetric);
  EXPECT_THAT(
      error_of([&] {
        json config = llama_;
        config["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}};
        parse_hf_config(kPath, config.dump());
      }),
      HasSubstr("found codes of awq, expected plain weights: only zero_generate reads"));
}

// What their programs write beside what is read: kernels, recipes, versions.
TEST_F(QuantizationConfig, WhatProgramsOfGptqAndAwqAddIsPassedOver) {
  const json gptq{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"sym", true}};
  const json awq{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}};
  const json gptqmodel{{"desc_act", false},
                       {"lm_head", false},
                       {"pack_dtype", "int32"},
                       {"pack_impl", "cpu"},
                       {"meta", {{"quantizer", {"gptqmodel:5.6.12"}}, {"gptaq", nullptr}}}};
  const json transformers{{"backend", "auto"},
                          {"checkpoint_format", "gptq"},
                          {"act_group_aware", true},
                          {"modules_in_block_to_quantize", nullptr}};
  const json auto_round{{"autoround_version", "0.13.0"},
                        {"provider", "auto-round"},
                        {"data_type", "int"},
                        {"iters", 200},
                        {"lr", 0.005},
                        {"scale_dtype", "torch.float16"},
                        {"static_kv_granularity", "tensor"},
                        {"to_quant_block_names", "model.layers"}};
  const auto with = [&](json section, const json& more) {
    section.update(more);
    return refusal(section);
  };
  for (const json& more : {gptqmodel, transformers, auto_round}) {
    EXPECT_EQ(with(gptq, more), "no error") << more;
  }
  json gemm = gptqmodel;
  for (const char* name : {"version", "format", "checkpoint_format"}) gemm[name] = "gemm";
  for (const json& more : {gemm, auto_round}) EXPECT_EQ(with(awq, more), "no error") << more;
  for (const char* name : {"version", "format", "checkpoint_format"}) {
    json other = gemm;
    other[name] = "gemv_fast";
    EXPECT_THAT(with(awq, other), HasSubstr(std::string("quantization_config.") + name +
                                            ": found \"gemv_fast\", expected \"gemm\""));
  }
  for (const json& section : {gptq, awq}) {
    EXPECT_THAT(with(section, {{"data_type", "mx_fp"}}),
                HasSubstr("data_type: found \"mx_fp\", expected \"int\": codes are whole numbers"));
    EXPECT_THAT(with(section, {{"act_bits", 8}}),
                HasSubstr("quantization_config.act_bits: found 8"));
    EXPECT_THAT(with(section, {{"rotation", "hadamard"}}),
                HasSubstr("quantization_config.rotation: found \"hadamard\""));
  }
}

TEST_F(QuantizationConfig, KindsOfGptqAndAwqThatAreNotReadAreNamed) {
  const auto with = [&](const char* method, const char* name, const json& value) {
    json section{{"quant_method", method}, {"bits", 4}, {"group_size", 128}};
    section[name] = value;
    return refusal(section);
  };
  const auto place = [](const std::string& rest) {
    return HasSubstr("config.json: quantization_config." + rest);
  };
  for (const char* method : {"gptq", "awq"}) {
    EXPECT_THAT(with(method, "bits", 3), place("bits: found 3, expected 4: take the folder"));
    for (const int group : {0, 16, 48, -2}) {
      EXPECT_THAT(with(method, "group_size", group),
                  place("group_size: found " + std::to_string(group) +
                        ", expected -1 (all inputs in one group) or a multiple of 32"));
    }
    EXPECT_THAT(with(method, "w_bit", 8),
                place("bits: found 4 beside w_bit 8, expected one value"));
    EXPECT_THAT(with(method, "lm_head", true), place("lm_head: found true, expected false"));
    EXPECT_THAT(with(method, "pack_dtype", "int16"),
                place("pack_dtype: found \"int16\", expected \"int32\""));
    EXPECT_THAT(with(method, "dynamic", {{"+:.*", {{"bits", 8}}}}), place("dynamic: found {"));
    EXPECT_THAT(with(method, "modules_to_not_convert", "lm_head"),
                place("modules_to_not_convert: found \"lm_head\""));
    EXPECT_THAT(with(method, "new_kind", 3), HasSubstr("quantization_config.new_kind: found 3"));
  }
  EXPECT_THAT(refusal({{"quant_method", "gptq"}, {"group_size", 128}}), place("bits is missing"));
  EXPECT_THAT(with("gptq", "checkpoint_format", "marlin"),
              place("checkpoint_format: found \"marlin\", codes repacked for one kernel, expected "
                    "\"gptq\" or \"gptq_v2\""));
  EXPECT_THAT(with("gptq", "is_marlin_format", true),
              place("is_marlin_format: found true, expected false: codes repacked for Marlin's"));
  EXPECT_THAT(with("gptq", "sym", 1), place("sym: found 1"));
  for (const char* version : {"gemv", "gemv_fast", "marlin"}) {
    EXPECT_THAT(with("awq", "version", version),
                place(std::string("version: found \"") + version + "\", expected \"gemm\": other"));
  }
  EXPECT_THAT(with("awq", "backend", "llm-awq"), place("backend: found \"llm-awq\""));
  EXPECT_THAT(with("awq", "desc_act", true), place("desc_act: found true, expected false"));
}

}  // namespace
}  // namespace zero::testing
