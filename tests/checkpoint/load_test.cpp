// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Files of others into the parameters of engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include "checkpoint/weights.h"
#include "tests/checkpoint/engine_of.h"
#include "tests/checkpoint/tensor_files.h"
#include "tests/support/tiny_models.h"
#include "weights/file_match.h"
#include "weights/model_files.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

const Tensors kGpt2{{{"wte.weight", {10, 4}},
                     {"wpe.weight", {6, 4}},
                     {"h.0.ln_1.weight", {4}},
                     {"h.0.attn.c_attn.weight", {4, 12}},
                     {"h.0.attn.c_attn.bias", {12}},
                     {"h.1.ln_1.weight", {4}},
                     {"h.1.attn.c_attn.weight", {4, 12}},
                     {"h.1.attn.c_attn.bias", {12}}}};

/// What gpt2_tiny.safetensors holds: elements count up over its tensors, the last of each layer in
/// fewer bits.
float gpt2_value(std::size_t tensor, std::int64_t element) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < tensor; ++i) before += kGpt2.specs[i].count();
  const auto value = static_cast<float>(before + element);
  if (kGpt2.specs[tensor].name == "h.1.ln_1.weight") return to_float(to_bfloat16(value));
  return value;
}

TEST(LoadTensors, EachRankGetsItsElementsOfAHuggingFaceFileInAnyWorld) {
  for (const int world : {1, 2, 3, 5}) {
    EXPECT_THAT(errors_of(world, kGpt2,
                          [&](Engine& engine) {
                            load_weights(engine, recorded("gpt2_tiny.safetensors"), gpt2_names());
                            EXPECT_TRUE(holds(engine, kGpt2, gpt2_value));
                          }),
                Each("no error"));
  }
}

TEST(LoadTensors, ConvertsToTheDtypeOfFrozenParameters) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Tensors tensors = kGpt2;
    tensors.compute = dtype;
    for (ParameterSpec& spec : tensors.specs) spec.trainable = false;
    EXPECT_THAT(errors_of(2, tensors,
                          [&](Engine& engine) {
                            load_weights(engine, recorded("gpt2_tiny.safetensors"), gpt2_names());
                            EXPECT_TRUE(holds(engine, tensors, [&](std::size_t t, std::int64_t i) {
                              const float exact = gpt2_value(t, i);
                              return dtype == DType::bf16 ? to_float(to_bfloat16(exact)) : exact;
                            }));
                          }),
                Each("no error"));
  }
}

TEST(LoadTensors, ReadsNothingButTheElementsOfTheRank) {
  Scratch scratch;
  const std::string path = scratch.path("sparse");
  constexpr std::int64_t kCount = std::int64_t{1} << 38;  // 1 TiB of fp32, all of it a hole
  const FileHeader layout = lay_out({{"t", FileType::f32, {kCount}}}, {});
  write_bytes(path, header_bytes(layout));
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(layout.data_begin + 4 * kCount));
  std::vector<SafetensorsReader> files;
  files.emplace_back(path);
  LayoutTensor tensor;
  tensor.name = "t";
  tensor.shape = {kCount};
  const FileMatch match = match_files(files, std::span(&tensor, 1), names::plain());
  std::int64_t read = 0;
  read_elements(
      match,
      [&](std::size_t, const FileRange& visit) {
        visit(0, 1);
        visit(kCount - 300'000, 300'000);
      },
      [&](std::size_t, std::int64_t begin, const View& values) {
        EXPECT_TRUE(begin == 0 || begin >= kCount - 300'000);
        for (const float value : values.as<const float>()) EXPECT_EQ(value, 0.0F);
        read += values.count();
      });
  EXPECT_EQ(read, 300'001);
}

/// The message of loading a file of `tensors` (zeros) for one fp32 parameter "h.0.w" of shape [2]
/// and one "wte.weight" of shape [3].
std::string error_of_loading(std::vector<FileTensor> tensors, const NameMap& names) {
  Scratch scratch;
  const std::string path = scratch.path("weights");
  write_tensors(path, lay_out(std::move(tensors), {}));
  const Tensors two{{{"h.0.w", {2}}, {"wte.weight", {3}}}};
  const auto errors = errors_of(2, two, [&](Engine& engine) {
    fill(engine, two, some_value);
    load_weights(engine, path, names);
    EXPECT_TRUE(holds(engine, two, [](std::size_t, std::int64_t) { return 0.0F; }));
  });
  EXPECT_EQ(errors[0], errors[1]);
  return errors[0] == "no error" ? errors[0]
                                 : errors[0].substr(0, errors[0].find(path)) +
                                       errors[0].substr(errors[0].find(path) + path.size());
}

const FileTensor kW{"h.0.w", FileType::f32, {2}};
const FileTensor kWte{"wte.weight", FileType::f32, {3}};

TEST(LoadTensors, NamesMayHaveThePrefixOrNot) {
  EXPECT_EQ(error_of_loading({kW, kWte}, gpt2_names()), "no error");
  EXPECT_EQ(error_of_loading({kW, kWte}, names::plain()), "no error");
  EXPECT_EQ(error_of_loading({{"transformer.h.0.w", FileType::f16, {2}}, kWte}, gpt2_names()),
            "no error");
  EXPECT_THAT(
      error_of_loading({{"transformer.h.0.w", FileType::f32, {2}}, kW, kWte}, gpt2_names()),
      AllOf(
          HasSubstr("tensor \"h.0.w\" and "),
          HasSubstr("tensor \"transformer.h.0.w\" are both \"h.0.w\" of the model; expected one")));
  EXPECT_THAT(error_of_loading({{"transformer.h.0.w", FileType::f32, {2}}, kWte}, names::plain()),
              HasSubstr("tensor \"transformer.h.0.w\": found F32 [2], expected no tensor"));
}

TEST(LoadTensors, ATensorInTwoFilesIsNamedWithBoth) {
  Scratch scratch;
  const std::string first = scratch.path("model-1.safetensors");
  const std::string second = scratch.path("model-2.safetensors");
  write_tensors(first, lay_out({{"a", FileType::f32, {2}}, {"b", FileType::f32, {2}}}, {}));
  write_tensors(second, lay_out({{"b", FileType::f32, {2}}, {"c", FileType::f32, {2}}}, {}));
  // The index lists one file for it; both hold it.
  write_bytes(scratch.path("model.safetensors.index.json"),
              R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors",
                  "c": "model-2.safetensors"}})");
  const std::vector<SafetensorsReader> files = open_weights(scratch.path());
  std::vector<LayoutTensor> tensors(3);
  for (std::size_t i = 0; i < 3; ++i) {
    tensors[i].name = "abc"[i];
    tensors[i].shape = {2};
  }
  EXPECT_EQ(error_of([&] { match_files(files, tensors, names::plain()); }),
            first + ": tensor \"b\" and " + second +
                ": tensor \"b\" are both \"b\" of the model; expected one");
}

TEST(LoadTensors, AMissingTensorIsNamed) {
  EXPECT_EQ(error_of_loading({kW}, gpt2_names()),
            "[rank 0] load_weights: : tensor \"wte.weight\": found none of that name among 1 (with "
            "or without \"transformer.\"), expected shape [3]");
}

TEST(LoadTensors, AWrongShapeIsNamed) {
  EXPECT_EQ(
      error_of_loading({{"transformer.h.0.w", FileType::f32, {1, 2}}, kWte}, gpt2_names()),
      "[rank 0] load_weights: : tensor \"transformer.h.0.w\": found shape [1, 2], expected [2]");
}

TEST(LoadTensors, ADtypeThatIsNoWeightIsNamed) {
  EXPECT_EQ(
      error_of_loading({{"h.0.w", FileType::f64, {2}}, kWte}, gpt2_names()),
      "[rank 0] load_weights: : tensor \"h.0.w\": found dtype F64, expected F32, BF16 or F16");
}

// As transformers, vLLM and converters have written them, in any shape.
TEST(LoadTensors, TablesOfAnglesAreLeftOutWhereverTheyAre) {
  const auto names = file_names(tiny_llama());
  for (const char* before :
       {"", "model.", "model.layers.3.self_attn.", "layers.0.attention.", "rope.inner."}) {
    for (const char* table : {"inv_freq", "cos_cached", "sin_cached"}) {
      const std::string name = fmt::format("{}rotary_emb.{}", before, table);
      EXPECT_EQ(error_of_loading({kW, kWte, {name, FileType::f16, {1, 1, 4}}}, names), "no error")
          << name;
    }
  }
  for (const char* name : {"my_rotary_emb.inv_freq", "rotary_emb.inv_freq.weight", "inv_freq"}) {
    EXPECT_THAT(error_of_loading({kW, kWte, {name, FileType::f32, {2}}}, names),
                HasSubstr("expected no tensor of that name"));
  }
}

TEST(LoadTensors, AnUnexpectedTensorIsNamedAndTheKnownExtrasAreLeftOut) {
  EXPECT_EQ(error_of_loading({kW,
                              kWte,
                              {"h.12.attn.bias", FileType::boolean, {1, 1, 4, 4}},
                              {"transformer.h.0.attn.masked_bias", FileType::f32, {}},
                              {"lm_head.weight", FileType::f32, {3}}},
                             gpt2_names()),
            "no error");
  for (const char* name :
       {"h.x.attn.bias", "h..attn.bias", "h.0.attn.bias2", "attn.bias", "score"}) {
    EXPECT_THAT(
        error_of_loading({kW, kWte, {name, FileType::u8, {7}}}, gpt2_names()),
        HasSubstr(fmt::format(
            "tensor \"{}\": found U8 [7], expected no tensor of that name: the model has 2 others, "
            "and what is left out by name is h.*.attn.bias, h.*.attn.masked_bias, lm_head.weight",
            name)));
  }
  EXPECT_THAT(error_of_loading({kW, kWte, {"h.0.attn.bias", FileType::u8, {7}}}, names::plain()),
              HasSubstr("what is left out by name is none"));
  EXPECT_THAT(error_of_loading({kW, kWte, {"\x1b[2Jx", FileType::u8, {7}}}, names::plain()),
              HasSubstr("tensor \"?[2Jx\": found U8 [7], expected no tensor of that name"));
}

TEST(LoadTensors, AnUntiedHeadIsRefused) {
  EXPECT_THAT(error_of_loading({kW, kWte, {"lm_head.weight", FileType::f32, {4}}}, gpt2_names()),
              HasSubstr("tensor \"lm_head.weight\": found shape [4], expected [3]"));
  Scratch scratch;
  const std::string path = scratch.path("untied");
  const Tensors wte{{{"wte.weight", {100}}}};
  std::array<float, 100> values{};
  values[80] = 0.5F;
  const auto bytes = std::as_bytes(std::span(values));
  write_tensors(
      path,
      lay_out({{"lm_head.weight", FileType::f32, {100}}, {"wte.weight", FileType::f32, {100}}}, {}),
      {{"lm_head.weight", {bytes.begin(), bytes.end()}}});
  // Element 80 belongs to rank 1 alone; both must hear of it, and neither may have changed a value.
  EXPECT_THAT(errors_of(2, wte,
                        [&](Engine& engine) {
                          fill(engine, wte, some_value);
                          EXPECT_THAT(
                              error_of([&] { load_weights(engine, path, gpt2_names()); }),
                              AllOf(HasSubstr("[rank 1] load_weights: " + path),
                                    HasSubstr("tensor \"lm_head.weight\" (element 80, offset"),
                                    HasSubstr("found 0.5, expected 0 as in \"wte.weight\": the "
                                              "model has one tensor for both; if they are meant "
                                              "to differ, as transformers 5 takes them, set "
                                              "tie_word_embeddings to false")));
                          EXPECT_TRUE(holds(engine, wte, some_value));
                        }),
              Each("no error"));
}

// Files of a tied model may hold the head, and no embedding.
TEST(LoadTensors, ATiedHeadAloneIsTheEmbedding) {
  EXPECT_EQ(error_of_loading({kW, {"lm_head.weight", FileType::f32, {3}}}, gpt2_names()),
            "no error");
  EXPECT_THAT(error_of_loading({kW, {"lm_head.weight", FileType::f32, {4}}}, gpt2_names()),
              HasSubstr("tensor \"lm_head.weight\": found shape [4], expected [3]"));
  Scratch scratch;
  const std::string path = scratch.path("head");
  const Tensors wte{{{"wte.weight", {100}}}};
  std::array<float, 100> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = some_value(0, std::int64_t(i));
  const auto bytes = std::as_bytes(std::span(values));
  write_tensors(path, lay_out({{"lm_head.weight", FileType::f32, {100}}}, {}),
                {{"lm_head.weight", {bytes.begin(), bytes.end()}}});
  EXPECT_THAT(errors_of(2, wte,
                        [&](Engine& engine) {
                          load_weights(engine, path, gpt2_names());
                          EXPECT_TRUE(holds(engine, wte, some_value));
                        }),
              Each("no error"));
}

TEST(LoadTensors, TensorsOfOtherProgramsAreNamedWithWhatToDo) {
  const auto refusal = [](const FileTensor& tensor) {
    return error_of_loading({tensor, kW, kWte}, gpt2_names());
  };
  const std::pair<const char*, const char*> kinds[] = {
      {"_orig_mod.transformer.h.0.w", "; _orig_mod. is of torch.compile: save the module that was"},
      {"module.h.0.w", "; module. is of DistributedDataParallel, DeepSpeed or the like: save the"},
      {"v_head.summary.weight",
       "; it is the value head of TRL's AutoModelForCausalLMWithValueHead"},
      {"base_model.model.h.0.w", "; it is of an adapter of PEFT: merge it into its base"},
      {"h.0.attn.lora_A.weight", "; it is of an adapter of PEFT: merge it into its base"},
      {"language_model.model.layers.0.w",
       "; the model is multimodal, and only text is computed: have transformers save the text "
       "part: Gemma3ForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT)"},
      {"model.vision_tower.w", "; the model is multimodal"},
      {"h.0.w.weight_scale_inv",
       "; the weights are codes of 8 bits (FP8) with scales beside them"}};
  for (const auto& [name, advice] : kinds) {
    EXPECT_THAT(refusal({name, FileType::f32, {2}}),
                AllOf(HasSubstr("expected no tensor of that name"), HasSubstr(advice)));
  }
  EXPECT_THAT(
      error_of_loading({{"h.0.w", FileType::f8_e4m3, {2}}, kWte}, gpt2_names()),
      HasSubstr("found dtype F8_E4M3, expected F32, BF16 or F16; the weights are codes of 8 "
                "bits (FP8) with scales beside them: have transformers write them whole"));
  EXPECT_THAT(
      error_of_loading({{"h.0.w", FileType::f32, {0}}, kWte}, gpt2_names()),
      HasSubstr("tensor \"h.0.w\": found shape [0], expected [2]; the file was saved under "
                "DeepSpeed's ZeRO-3, or FSDP, without gathering the weights: save with "
                "stage3_gather_16bit_weights_on_model_save, or run zero_to_fp32.py FOLDER OUT"));
}

TEST(LoadTensors, AMissingFileIsNamedOnAllRanks) {
  EXPECT_THAT(
      errors_of(3, {{{"a", {1}}}},
                [](Engine& engine) {
                  load_weights(engine, "/nowhere/weights.safetensors", gpt2_names());
                }),
      Each("[rank 0] load_weights: /nowhere/weights.safetensors: cannot open for reading: No "
           "such file or directory"));
}

}  // namespace
}  // namespace zero::testing
