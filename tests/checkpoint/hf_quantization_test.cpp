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
      "expected codes that zero_generate --save-quantized wrote (quant_method \"zero\"): take the "
      "folder from which these were made, and --weights int8, nf4 or q4";
  for (const char* method : {"gptq", "awq", "fp8", "compressed-tensors"}) {
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

}  // namespace
}  // namespace zero::testing
