// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Fields of config.json as public models have them (model_configs/models.json, written anew), and
// what else stands where a folder of a model is expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/weights.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "weights/hf/advice.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"

namespace zero::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

/// Parameters and context that each model has, by what its publishers say of it.
struct Size {
  double millions;
  std::int64_t context;
};
const std::map<std::string, Size> kSizes{
    {"gpt2", {124, 1024}},
    {"gpt2-medium", {355, 1024}},
    {"gpt2-large", {774, 1024}},
    {"gpt2-xl", {1558, 1024}},
    {"distilgpt2", {82, 1024}},
    {"dialogue gpt2", {355, 1024}},
    {"a gpt2 of another language", {336, 1024}},
    {"a gpt2 with generation fields", {124, 1024}},
    {"first llama conversion", {6738, 2048}},
    {"Llama-2-7b", {6738, 4096}},
    {"Llama-2 cut in two", {13016, 4096}},
    {"Llama-3-8B", {8030, 8192}},
    {"Llama-3.1-8B-Instruct", {8030, 131072}},
    {"Unsloth Llama-3.2-1B", {1236, 131072}},
    {"Unsloth Mistral-7B", {7248, 32768}},
    {"Unsloth Qwen2.5-7B", {7616, 32768}},
    {"TinyLlama", {1100, 2048}},
    {"Mistral-7B-v0.1", {7242, 32768}},
    {"Mistral-7B-v0.2", {7242, 32768}},
    {"Mistral-7B-v0.3", {7248, 32768}},
    {"Mistral-Nemo", {12248, 1024000}},
    {"zephyr", {7242, 32768}},
    {"Qwen2-7B", {7616, 131072}},
    {"Qwen2.5-0.5B", {494, 32768}},
    {"Qwen2 with windows above all layers", {630, 32768}},
    {"Qwen1.5-7B", {7721, 32768}},
    {"Qwen3-0.6B", {596, 40960}},
    {"Qwen3-8B", {8191, 40960}},
    {"gemma-3-1b-it", {1000, 32768}},
    {"gemma-3-270m", {268, 32768}},
    {"Yi-6B", {6061, 4096}},
    {"SmolLM-135M", {135, 2048}},
    {"SmolLM2-135M-Instruct", {135, 8192}},
    {"open_llama", {3426, 2048}},
    {"a dynamic stretch", {6738, 4096}},
    {"a stretch of one", {6738, 4096}},
    {"written by transformers 5", {8030, 131072}},
    {"Qwen2.5-1.5B written by transformers 5", {1544, 32768}},
    {"DeepSeek-R1-Distill-Qwen-1.5B", {1777, 131072}},
    {"a pruned DeepSeek-R1-Distill-Qwen", {2779, 131072}},
    {"Mistral-Small-24B written by transformers 5", {23572, 131072}},
    {"deepseek-llm-7b", {6910, 4096}},
    {"Yi-1.5-34B", {34389, 4096}},
};

TEST(WildModelConfigs, ArePublicModelsOfTheirSizes) {
  std::ifstream file(ZERO_WILD "/model_configs/models.json");
  const json all = json::parse(file);
  EXPECT_EQ(all.size(), kSizes.size());
  for (const auto& [name, config] : all.items()) {
    const Size& expected = kSizes.at(name);
    std::string text;
    const std::string why = error_of([&] {
      const DecoderShape model = parse_hf_config(name, config.dump());
      EXPECT_NEAR(static_cast<double>(model.parameter_count()) / 1e6, expected.millions, 0.6)
          << name;
      EXPECT_EQ(model.context, expected.context) << name;
      text = carried_config_text(name, config.dump());
      EXPECT_EQ(hf_config_text(parse_hf_config(name, text)), hf_config_text(model)) << name;
    });
    EXPECT_EQ(why, "no error") << name;
    const json saved = json::parse(text);
    for (const auto& [field, value] : config.items()) {
      const bool type = field == "torch_dtype" || field == "dtype";
      EXPECT_EQ(saved.at(field), type ? json("float32") : value) << name << ": " << field;
    }
  }
}

TEST(WildModelFolders, ClonedWithoutLargeFilesSayHowTheyCome) {
  const Scratch scratch;
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') +
      "\nsize 548105171\n";
  write(scratch.path("model.safetensors"), pointer);
  write(scratch.path("config.json"), pointer);
  EXPECT_THAT(error_of([&] { open_weights(scratch.path()); }),
              AllOf(HasSubstr("model.safetensors: is a Git LFS pointer, not the file"),
                    HasSubstr("run git lfs pull in the folder")));
  EXPECT_THAT(error_of([&] { read_hf_config(scratch.path()); }),
              HasSubstr("config.json: is a Git LFS pointer"));
  EXPECT_THAT(error_of([&] { read_model_text(scratch.path("config.json")); }),
              HasSubstr("config.json: is a Git LFS pointer"));
}

TEST(WildModelFolders, AHubNameIsAnsweredWithWhatToGive) {
  for (const char* name : {"gpt2", "Qwen/Qwen2.5-0.5B", "mistralai/Mistral-7B-v0.1"}) {
    EXPECT_THAT(error_of([&] { read_hf_config(name); }),
                AllOf(HasSubstr("models are not downloaded here"),
                      HasSubstr(std::string("run hf download ") + name + " --local-dir FOLDER")));
  }
  for (const char* path : {"/nowhere/gpt2", "./gpt2", "a/b/c", "", "a b"}) {
    EXPECT_EQ(folder_advice(path), "") << path;
  }
}

TEST(WildModelFolders, AFolderOfTheHubsCacheIsAnsweredWithItsSnapshot) {
  const Scratch scratch;
  const std::string cache = scratch.path("models--openai-community--gpt2");
  write(cache + "/refs/main", "0123abcd\n");
  std::filesystem::create_directories(cache + "/snapshots/");
  EXPECT_THAT(error_of([&] { read_hf_config(cache); }), HasSubstr("without a whole snapshot"));
  write(cache + "/snapshots/99/config.json", "{}");
  EXPECT_THAT(error_of([&] { read_hf_config(cache); }),
              HasSubstr("cache: give " + cache + "/snapshots/99"));
  write(cache + "/snapshots/0123abcd/config.json", "{}");
  for (const std::string& given : {cache, cache + "/", cache + "/snapshots"}) {
    EXPECT_THAT(error_of([&] { read_hf_config(given); }),
                HasSubstr("cache: give " + cache + "/snapshots/0123abcd"));
    EXPECT_THAT(error_of([&] { weight_files(given); }),
                HasSubstr("cache: give " + cache + "/snapshots/0123abcd"));
  }
}

TEST(WildModelFolders, WeightsUnderOtherNamesAreNamed) {
  const Scratch scratch;
  write(scratch.path("config.json"), "{}");
  write(scratch.path("gptq_model-4bit-128g.safetensors"), "");
  EXPECT_THAT(error_of([&] { open_weights(scratch.path()); }),
              HasSubstr("with one of them; if its gptq_model-4bit-128g.safetensors is all of the "
                        "weights, call it model.safetensors"));
  std::filesystem::remove(scratch.path("gptq_model-4bit-128g.safetensors"));
  write(scratch.path("model-00001-of-00002.safetensors"), "");
  EXPECT_THAT(error_of([&] { open_weights(scratch.path()); }),
              HasSubstr("with one of them; it holds model-00001-of-00002.safetensors without "
                        "model.safetensors.index.json"));
}

TEST(WildModelFolders, WeightsOfTorchAloneAreNamed) {
  const Scratch scratch;
  write(scratch.path("config.json"), "{}");
  write(scratch.path("pytorch_model.bin"), "PK");
  EXPECT_THAT(error_of([&] { open_weights(scratch.path()); }),
              HasSubstr("it holds pytorch_model.bin, which is not read: save the model as"));
}

}  // namespace
}  // namespace zero::testing
