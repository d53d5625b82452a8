// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/checkpoint/tensor_files.h"
#include "weights/hf/advice.h"
#include "weights/model_files.h"

namespace zero::testing {
namespace {

using namespace std::string_view_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Starts of files as their programs write them: magic, version, ...
const std::string kGguf{"GGUF\x03\0\0\0\x22\x01\0\0\0\0\0\0"sv};
const std::string kLlmC{"\xc6\xd7\x34\x01\x03\0\0\0\0\x04\0\0\x51\xc4\0\0"sv};
const std::string kZip{"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0"sv};
const std::string kOldPickle{"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.\x80"sv};

TEST(ForeignFile, IsNamedByItsFirstBytes) {
  EXPECT_THAT(foreign_file(kGguf), HasSubstr("is a GGUF file of llama.cpp, which is not read"));
  EXPECT_THAT(foreign_file(kLlmC), HasSubstr("is a model of llm.c, which is not read: have llm.c's "
                                             "dev/eval/export_hf.py --input FILE --output OUT"));
  EXPECT_THAT(foreign_file(kZip), HasSubstr("is a pickle of PyTorch, which is not read: save the"));
  EXPECT_EQ(foreign_file(kOldPickle), foreign_file(kZip));
  EXPECT_EQ(foreign_file(""), "");
  EXPECT_EQ(foreign_file("PK"), "");
  // Lengths of headers that begin with the same bytes.
  for (const std::string& magic : {kLlmC, kZip}) {
    EXPECT_EQ(foreign_file(magic.substr(0, 4) + std::string(4, '\0') + "{\"t\": {}}"), "");
  }
}

TEST(ForeignFile, IsRefusedBeforeItsHeaderIsRead) {
  const Scratch scratch;
  for (const std::string& start : {kGguf, kLlmC, kZip}) {
    const std::string path = scratch.path("weights");
    write_bytes(path, start);
    EXPECT_EQ(error_of([&] { ModelFiles().open(path); }), path + ": " + foreign_file(start));
    EXPECT_EQ(folder_advice(path), "; it " + foreign_file(start));
  }
}

class ForeignFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& content = "") const {
    fs::create_directories(fs::path(scratch_.path(name)).parent_path());
    write_bytes(scratch_.path(name), content);
  }
  /// Why the folder has no weights.
  std::string refusal() const {
    return error_of([&] { weight_files(scratch_.path()); });
  }

  Scratch scratch_;
};

TEST_F(ForeignFolder, OfAnAdapterNamesItsBase) {
  write("adapter_model.safetensors");
  write("adapter_config.json",
        R"({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen2.5-0.5B\u001b"})");
  EXPECT_THAT(refusal(), HasSubstr("found neither model.safetensors nor"));
  EXPECT_THAT(refusal(),
              HasSubstr("; it holds an adapter of PEFT (LORA), not a model: merge it "
                        "into its base, Qwen/Qwen2.5-0.5B?: PeftModel.from_pretrained("));
  write("adapter_config.json", "{");
  EXPECT_THAT(refusal(), HasSubstr("its base, which its adapter_config.json names: PeftModel"));
}

TEST_F(ForeignFolder, OfDeepSpeedNamesItsScript) {
  write("latest", "global_step500");
  EXPECT_EQ(foreign_folder(scratch_.path()), "") << "the name alone says little";
  write("global_step500/zero_pp_rank_0_mp_rank_00_model_states.pt", kZip);
  EXPECT_THAT(refusal(), HasSubstr("; it is a checkpoint of DeepSpeed: run zero_to_fp32.py FOLDER "
                                   "OUT --safe_serialization"));
  EXPECT_THAT(foreign_folder(scratch_.path("global_step500")),
              HasSubstr("run zero_to_fp32.py FOLDER, the one above, OUT"));
  fs::remove(scratch_.path("latest"));
  EXPECT_EQ(foreign_folder(scratch_.path()), "");
  write("zero_to_fp32.py");
  EXPECT_THAT(refusal(), HasSubstr("it is a checkpoint of DeepSpeed"));
}

TEST_F(ForeignFolder, OfAnFsdpRunNamesTheMerge) {
  write("pytorch_model_fsdp_0/__0_0.distcp");
  EXPECT_THAT(refusal(), HasSubstr("; it is a distributed checkpoint of PyTorch (FSDP): run "
                                   "accelerate merge-weights FOLDER/pytorch_model_fsdp_0 OUT"));
  EXPECT_THAT(foreign_folder(scratch_.path("pytorch_model_fsdp_0")),
              HasSubstr("merge-weights FOLDER OUT"));
}

TEST_F(ForeignFolder, OfMistralsOwnFormIsNamed) {
  write("consolidated.safetensors");
  write("params.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("; it holds consolidated.safetensors, weights in the form of "
                                   "Mistral's or Meta's own programs, which is not read: give the "
                                   "same model in Hugging Face's form"));
  write("model.safetensors");
  EXPECT_EQ(refusal(), "no error") << "both forms lie there";
}

TEST_F(ForeignFolder, AboveTheCheckpointsOfATrainerNamesTheNewest) {
  write("checkpoint-notes/config.json", "{}");
  write("checkpoint-2000/trainer_state.json", "{}");
  EXPECT_EQ(folder_advice(scratch_.path()), "") << "no model";
  write("checkpoint-500/config.json", "{}");
  write("checkpoint-1000/config.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("; it is the folder of a run of transformers' Trainer: give " +
                                   scratch_.path("checkpoint-1000")));
}

TEST_F(ForeignFolder, NamesTheFileThatHoldsTheWeights) {
  write("training_args.bin", kZip);
  EXPECT_EQ(foreign_folder(scratch_.path()), "");
  write("model_00001.bin", kLlmC);
  EXPECT_EQ(foreign_folder(scratch_.path()), "its model_00001.bin " + foreign_file(kLlmC));
  fs::remove(scratch_.path("model_00001.bin"));
  write("q4.gguf", kGguf);
  EXPECT_EQ(foreign_folder(scratch_.path()), "its q4.gguf " + foreign_file(kGguf));
  fs::remove(scratch_.path("q4.gguf"));
  write("pytorch_model.bin", kZip);
  EXPECT_EQ(foreign_folder(scratch_.path()), "its pytorch_model.bin " + foreign_file(kZip));
  fs::remove(scratch_.path("pytorch_model.bin"));
  write("pytorch_model.bin.index.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("it holds pytorch_model.bin.index.json, which is not read"));
}

}  // namespace
}  // namespace zero::testing
