// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/checkpoints/checkpoint_tool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "checkpoint/checkpointer.h"
#include "collectives/backends.h"
#include "engine/engine.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/errors.h"
#include "tests/launch/saved_checkpoints.h"
#include "tests/scratch.h"
#include "weights/hf/safetensors.h"
#include "weights/model_files.h"

namespace zero::checkpoint_tool {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::Faults;
using ::testing::HasSubstr;
using testing::HookedDisk;
using ::testing::Not;
using testing::Saved;
using testing::Scratch;
using Verdict = Answer::Verdict;

files::FileSystem& disk() { return files::disk(); }

TEST(CheckpointTool, ListsWhatIsThereAndWhyNot) {
  const Saved saved(2);
  fs::create_directories(saved.at(3) + ".partial/weights");
  saved.damage(1, "index.json");
  const Answer text = list(disk(), saved.folder(), Form::text);
  EXPECT_THAT(
      text.text,
      AllOf(ContainsRegex(" step +size +saved +checkpoint\n"),
            ContainsRegex(" 3 +- +20[-0-9T:]+Z +[^ ]*step_00000003.partial: not complete: "),
            ContainsRegex(" 2 +[0-9.]+ kB +20[-0-9T:]+Z +[^ ]*step_00000002\n"),
            ContainsRegex(" 1 +- .*step_00000001: not complete: .*COMMIT")));
  const auto json = nlohmann::json::parse(list(disk(), saved.folder(), Form::json).text);
  ASSERT_EQ(json.size(), 3U);
  EXPECT_EQ(json[1]["step"], 2);
  EXPECT_EQ(json[1]["complete"], true);
  EXPECT_GT(json[1]["bytes"], 3 * 4 * 20 * (Saved::kRows + 1));
  EXPECT_EQ(json[1]["path"], saved.at(2));
  EXPECT_EQ(json[2]["complete"], false);
  EXPECT_TRUE(json[2]["bytes"].is_null());
  EXPECT_EQ(list(disk(), saved.root().path(), Form::json).text, "[]\n");
  EXPECT_THAT(error_of([&] { list(disk(), saved.folder() + "x", Form::text); }),
              HasSubstr("is no folder; give that of a run's checkpoints"));
}

TEST(CheckpointTool, VerifiesOneOrAll) {
  const Saved saved(2);
  EXPECT_EQ(verify(disk(), saved.folder()).verdict, Verdict::yes);
  saved.damage(1, "moments/moment1.safetensors");
  const Answer all = verify(disk(), saved.folder());
  EXPECT_EQ(all.verdict, Verdict::no);
  EXPECT_THAT(all.text, AllOf(HasSubstr("step_00000002: every byte is as it was saved\n"),
                              HasSubstr("damaged: "), HasSubstr("moment1.safetensors"),
                              HasSubstr("layer.bias")));
  EXPECT_EQ(verify(disk(), saved.at(2)).verdict, Verdict::yes);
  EXPECT_EQ(verify(disk(), saved.at(1)).verdict, Verdict::no);
  fs::rename(saved.at(2), saved.at(2) + ".partial");
  fs::remove_all(saved.at(1));
  const Answer partial = verify(disk(), saved.folder());
  EXPECT_EQ(partial.verdict, Verdict::yes);
  EXPECT_THAT(partial.text, HasSubstr("step_00000002.partial: not complete"));
}

TEST(CheckpointTool, VerifiesAReplacedCheckpointToo) {
  const Saved saved(1);
  fs::rename(saved.at(1), saved.at(1) + ".old");
  EXPECT_EQ(verify(disk(), saved.folder()).text,
            saved.at(1) + ".old: every byte is as it was saved\n");
}

// Where one looks by mistake: above the folder, in a checkpoint, below one.
TEST(CheckpointTool, TellsWhereTheCheckpointsAre) {
  const Saved saved(2);
  fs::create_directories(saved.root().path("another"));
  const std::string above = saved.root().path();
  const std::string inside = saved.at(2) + "/weights";
  const std::string found_below = above + " holds no checkpoint; " + saved.folder() + " does";
  const std::string is_one =
      saved.at(2) + " holds no checkpoint; it is one, in the folder " + saved.folder();
  EXPECT_EQ(list(disk(), above, Form::text).text, found_below + "\n");
  EXPECT_EQ(list(disk(), saved.at(2), Form::text).text, is_one + "\n");
  EXPECT_EQ(error_of([&] { verify(disk(), above); }), found_below);
  EXPECT_EQ(error_of([&] { prune(disk(), above, {.last = 1}); }), found_below);
  EXPECT_EQ(error_of([&] { prune(disk(), saved.at(2) + "/", {.last = 1}); }),
            saved.at(2) + "/ holds no checkpoint; it is one, in the folder " + saved.folder());
  EXPECT_EQ(error_of([&] { show(disk(), inside); }),
            inside + " holds no checkpoint; " + saved.at(2) + " is one");
  EXPECT_EQ(error_of([&] { show(disk(), saved.root().path("another")); }),
            saved.root().path("another") + " holds no checkpoint");
}

TEST(CheckpointTool, TellsWhatOtherProgramsSaved) {
  const Scratch root;
  for (const char* name : {"deepspeed", "dcp", "trainer/checkpoint-500", "peft", "gguf", "hf"}) {
    fs::create_directories(root.path(name));
  }
  root.write("deepspeed/zero_to_fp32.py", "");
  root.write("dcp/__0_0.distcp", "");
  root.write("trainer/checkpoint-500/config.json", "{}");
  root.write("peft/adapter_config.json", "{}");
  root.write("gguf/q4.gguf", std::string("GGUF\x03\0\0\0\x22\x01\0\0\0\0\0\0", 16));
  root.write("hf/config.json", "{}");
  const std::pair<const char*, std::string> cases[] = {
      {"deepspeed", "it is a checkpoint of DeepSpeed: run zero_to_fp32.py"},
      {"dcp", "it is a distributed checkpoint of PyTorch (FSDP)"},
      {"trainer", "it is the folder of a run of transformers' Trainer: give " +
                      root.path("trainer/checkpoint-500")},
      {"trainer/checkpoint-500", "it is the folder of a model"},
      {"peft", "it holds an adapter of PEFT (LORA)"},
      {"gguf", "its q4.gguf is a GGUF file of llama.cpp"},
      {"hf", "it is the folder of a model"}};
  for (const auto& [name, what] : cases) {
    EXPECT_THAT(error_of([&] { show(disk(), root.path(name)); }),
                AllOf(HasSubstr(root.path(name) + " holds no checkpoint; " + what),
                      HasSubstr("; zero_ckpt takes checkpoints of zero_train alone")));
  }
}

TEST(CheckpointTool, NamesFilesThatAreNotOfTheCheckpoint) {
  const Saved saved(1);
  const std::string at = saved.at(1);
  const Answer clean = verify(disk(), at);
  saved.root().write("ck/step_00000001/weights/adapter\x1b.bin", "x");
  saved.root().write("ck/step_00000001/notes", "x");
  fs::rename(at + "/moments", saved.root().path("moments"));
  fs::create_symlink(saved.root().path("moments"), at + "/moments");
  fs::rename(at + "/weights/config.json", saved.root().path("config.json"));
  fs::create_symlink(saved.root().path("config.json"), at + "/weights/config.json");
  fs::create_symlink("nowhere", at + "/moments/more");
  const Answer answer = verify(disk(), at);
  EXPECT_EQ(answer.verdict, Verdict::yes);
  const std::string unlisted = ": is not of the checkpoint: its index.json does not list it\n";
  const std::string link = ": is a symbolic link: a copy of the checkpoint may not have the file\n";
  EXPECT_EQ(answer.text, clean.text + "warning: " + at + "/moments" + link +  //
                             "warning: " + at + "/moments/more" + unlisted +  //
                             "warning: " + at + "/notes" + unlisted +         //
                             "warning: " + at + "/weights/adapter?.bin" + unlisted +
                             "warning: " + at + "/weights/config.json" + link);
}

TEST(CheckpointTool, TellsADiskThatFailsFromDamage) {
  const Saved saved(2);
  const auto failing = [&](const std::string& call, const std::string& path) {
    const bool moments = path.find("step_00000002/moments/moment1") != path.npos;
    if (call == "read" && moments) fail("{}: offset 0: cannot read: Input/output error", path);
  };
  HookedDisk bad(failing);
  const Answer answer = verify(bad, saved.folder());
  EXPECT_EQ(answer.verdict, Verdict::unknown);
  EXPECT_THAT(answer.text,
              AllOf(ContainsRegex("unreadable: .*step_00000002/moments/moment1.safetensors: offset "
                                  "0: cannot read: Input/output error\n"),
                    HasSubstr("step_00000001: every byte is as it was saved\n"),
                    Not(HasSubstr("damaged"))));
  saved.damage(1, "moments/moment1.safetensors");
  const Answer both = verify(bad, saved.folder());
  EXPECT_EQ(both.verdict, Verdict::no);
  EXPECT_THAT(both.text, AllOf(HasSubstr("unreadable: "), HasSubstr("damaged: ")));
}

TEST(CheckpointTool, TellsWhatItMayNotReadFromWhatIsNotComplete) {
  const Saved saved(2);
  const std::string reason = "cannot look there: Permission denied";
  HookedDisk closed([&](const std::string& call, const std::string& path) {
    if (call == "kind_of" && path.find("step_00000002/") != path.npos) fail("{}: {}", path, reason);
  });
  const Answer text = list(closed, saved.folder(), Form::text);
  EXPECT_THAT(text.text, AllOf(ContainsRegex(" 2 +- .*step_00000002: cannot be read, and may be "
                                             "complete .*: Permission denied\n"),
                               Not(HasSubstr("not complete")),
                               ContainsRegex(" 1 +[0-9.]+ kB .*step_00000001\n")));
  const auto json = nlohmann::json::parse(list(closed, saved.folder(), Form::json).text);
  EXPECT_EQ(json[0]["unreadable"], true);
  EXPECT_EQ(json[1]["unreadable"], false);
  fs::remove_all(saved.at(1));
  EXPECT_THAT(error_of([&] { show(closed, saved.folder()); }),
              AllOf(HasSubstr("holds no complete checkpoint that can be read; "),
                    HasSubstr("step_00000002: unreadable: "), HasSubstr(reason)));
}

TEST(CheckpointTool, ShowsValuesAndTensors) {
  const Saved saved(1);
  EXPECT_THAT(
      show(disk(), saved.folder()).text,
      AllOf(HasSubstr("step_00000001: step 1, "), HasSubstr("\"run.seed\": 1"),
            ContainsRegex("parameter +layer.weight +\\[30, 20\\] +weights/model.safetensors at "),
            ContainsRegex("moment1 +layer.bias +\\[20\\] +moments/moment1.safetensors at ")));
  fs::remove(saved.at(1) + "/COMMIT");
  EXPECT_THAT(error_of([&] { show(disk(), saved.folder()); }),
              AllOf(HasSubstr("holds no complete checkpoint; "), HasSubstr("step_00000001: ")));
}

// Names and values come from outside; a terminal obeys some characters.
TEST(CheckpointTool, ShowsNoControlCharacters) {
  const std::string odd = "a\x1b[2J\xc2\x9b\r";
  const auto save = [&](const std::string& folder, float value) {
    local::run(1, [&](Communicator& communicator) {
      const auto device = cpu::open();
      Engine engine(communicator, *device, {});
      engine.add_unit("layer", {{odd, {3}, init::constant(value)}});
      if (value > 1) engine.add_unit("other", {{odd, {2}}});
      engine.seal();
      Checkpointer checkpointer(engine, {.folder = folder, .weight_files = {{odd, "text"}}});
      checkpointer.save({{odd, odd + std::to_string(value)}});
      checkpointer.wait();
      EXPECT_EQ(checkpointer.report()->error, "");
    });
  };
  const Scratch root;
  save(root.path("a"), 1);
  save(root.path("b"), 2);
  const auto safe = AllOf(HasSubstr("a?[2J??"), Not(ContainsRegex("[\x01-\x09\x0b-\x1f\x7f]")),
                          Not(HasSubstr("\xc2\x9b")));
  EXPECT_THAT(show(disk(), root.path("a")).text, safe);
  EXPECT_THAT(compare(disk(), root.path("a"), root.path("b")).text, safe);
  std::ofstream(checkpoint_path(root.path("a"), {.step = 0}) + "/weights/" + odd) << "Text";
  EXPECT_THAT(verify(disk(), root.path("a")).text, AllOf(HasSubstr("damaged: "), safe));
}

TEST(CheckpointTool, ComparesElementByElement) {
  const Saved saved(2);
  const Saved twin(2, /*file_bytes=*/100);  // cut otherwise, the values are equal
  const Answer same = compare(disk(), saved.folder(), twin.at(2));
  EXPECT_EQ(same.verdict, Verdict::yes);
  EXPECT_EQ(same.text, "equal: all 6 tensors and all values\n");
  const Answer other = compare(disk(), saved.at(1), saved.at(2));
  EXPECT_EQ(other.verdict, Verdict::no);
  EXPECT_THAT(
      other.text,
      AllOf(HasSubstr("step: 1 and 2\n"), HasSubstr("value /configuration/run.seed: 1 and 2\n"),
            ContainsRegex("first difference: parameter \"layer.bias\", element 0: "
                          "-0.[0-9]+ and -0.[0-9]+\n"),
            ContainsRegex("moment0 \"layer.weight\": 600 of 600 elements differ, by at "
                          "most 0.[0-9]+ .element [0-9]+.\n")));
  saved.damage(2, "weights/model.safetensors");
  EXPECT_THAT(error_of([&] { compare(disk(), saved.at(1), saved.at(2)); }),
              HasSubstr("model.safetensors"));
}

TEST(CheckpointTool, ExportsWeightsInThreeTypes) {
  const Saved saved(1, /*file_bytes=*/100);
  const std::string whole = saved.root().path("fp32");
  const std::string deep = saved.root().path("a/b/c");
  export_weights(disk(), saved.at(1), deep, DType::fp32);
  EXPECT_TRUE(fs::exists(deep + "/config.json"));
  const std::string half = saved.root().path("bf16");
  EXPECT_THAT(export_weights(disk(), saved.folder(), whole, DType::fp32).text,
              HasSubstr("fp32: the weights of step 1 as fp32, "));
  export_weights(disk(), saved.at(1), half, DType::bf16);
  const std::vector<std::string> files = weight_files(whole);
  const std::string fp16 = saved.root().path("fp16");
  export_weights(disk(), saved.at(1), fp16, DType::fp16);
  const std::vector<std::string> halves = weight_files(half);
  const std::vector<std::string> others = weight_files(fp16);
  ASSERT_EQ(files.size(), 2U);  // as the checkpoint is cut
  ASSERT_EQ(halves.size(), 2U);
  ASSERT_EQ(others.size(), 2U);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const SafetensorsReader one(files[i]);
    const SafetensorsReader other(halves[i]);
    ASSERT_EQ(one.header().tensors.size(), 1U);
    const FileTensor& tensor = one.header().tensors[0];
    const FileTensor* const rounded = other.find(tensor.name);
    ASSERT_NE(rounded, nullptr);
    EXPECT_EQ(rounded->type, FileType::bf16);
    EXPECT_EQ(rounded->shape, tensor.shape);
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    std::vector<bfloat16> found(values.size());
    one.read(tensor, 0, std::as_writable_bytes(std::span(values)));
    other.read(*rounded, 0, std::as_writable_bytes(std::span(found)));
    for (std::size_t j = 0; j < values.size(); ++j) {
      ASSERT_EQ(found[j], to_bfloat16(values[j]));
    }
    const SafetensorsReader third(others[i]);
    ASSERT_EQ(third.find(tensor.name)->type, FileType::f16);
    std::vector<float16> found16(values.size());
    third.read(*third.find(tensor.name), 0, std::as_writable_bytes(std::span(found16)));
    for (std::size_t j = 0; j < values.size(); ++j) ASSERT_EQ(found16[j], to_float16(values[j]));
  }
  const auto json = [&](const std::string& name) {
    return nlohmann::json::parse(saved.root().read(name));
  };
  EXPECT_EQ(json("fp32/config.json")["torch_dtype"], "float32");
  EXPECT_EQ(json("bf16/config.json")["torch_dtype"], "bfloat16");
  EXPECT_EQ(json("bf16/config.json")["x"], 1);
  EXPECT_EQ(json("fp16/config.json")["torch_dtype"], "float16");
  EXPECT_EQ(json("fp32/model.safetensors.index.json")["metadata"]["total_size"], 4 * 20 * 31);
  EXPECT_EQ(json("bf16/model.safetensors.index.json")["metadata"]["total_size"], 2 * 20 * 31);
  EXPECT_THAT(error_of([&] { export_weights(disk(), saved.at(1), half, DType::bf16); }),
              HasSubstr("bf16 is there already and is no empty folder; give a new one"));
}

// Nothing of a model that is not whole stays, and the folder is as good as new.
TEST(CheckpointTool, ExportsNothingThatIsDamaged) {
  const Saved saved(1, /*file_bytes=*/100);
  const std::string last = "weights/model-00002-of-00002.safetensors";
  saved.damage(1, last);
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const std::string out = saved.root().path(std::string(name_of(dtype)));
    EXPECT_THAT(error_of([&] { export_weights(disk(), saved.at(1), out, dtype); }),
                HasSubstr(last));
    EXPECT_TRUE(fs::is_empty(out));
  }
}

TEST(CheckpointTool, ALeftOverOfAnExportStaysAsLittle) {
  const Saved saved(1);
  for (const char* call : {"create", "write", "sync", "rename", "sync_folder"}) {
    Faults faults("No space left on device");
    faults.fail_at(call, 0);
    HookedDisk bad([&](const std::string& name, const std::string& path) { faults(name, path); });
    const std::string out = saved.root().path(call);
    EXPECT_THAT(error_of([&] { export_weights(bad, saved.at(1), out, DType::fp32); }),
                HasSubstr("No space left on device"));
    EXPECT_TRUE(faults.happened());
    EXPECT_TRUE(fs::is_empty(out)) << call;
  }
}

// One that is damaged and one that cannot be read are no stand-ins for the three that shall stay.
TEST(CheckpointTool, PruneKeepsGoodOnes) {
  const Saved saved(6);
  saved.damage(5, "moments/moment0.safetensors");
  HookedDisk bad([](const std::string& call, const std::string& path) {
    const bool config = path.find("step_00000003/weights/config.json") != path.npos;
    if (call == "read" && config) fail("{}: cannot read: Input/output error", path);
  });
  const Answer answer = prune(bad, saved.folder(), {.last = 3});
  EXPECT_EQ(answer.verdict, Verdict::no);
  EXPECT_THAT(answer.text,
              AllOf(ContainsRegex("damaged: .*step_00000005/moments/moment0.safetensors: offset 0"),
                    HasSubstr(saved.at(5) + ": is kept, and does not count\n"),
                    ContainsRegex("unreadable: .*step_00000003/weights/config.json: cannot read"),
                    HasSubstr(saved.at(3) + ": is kept, and does not count\n"),
                    HasSubstr("removed step 1\n")));
  for (const std::int64_t step : {2, 3, 4, 5, 6}) EXPECT_TRUE(fs::exists(saved.at(step))) << step;
  EXPECT_FALSE(fs::exists(saved.at(1)));
}

TEST(CheckpointTool, PruneRemovesNothingIfTooFewAreGood) {
  const Saved saved(3);
  for (const std::int64_t step : {1, 2, 3}) saved.damage(step, "moments/moment0.safetensors");
  const Answer answer = prune(disk(), saved.folder(), {.last = 1});
  EXPECT_EQ(answer.verdict, Verdict::no);
  EXPECT_THAT(answer.text, HasSubstr("nothing to remove\n"));
  for (const std::int64_t step : {1, 2, 3}) EXPECT_TRUE(fs::exists(saved.at(step))) << step;
}

TEST(CheckpointTool, PrunesAllButTheNewest) {
  const Saved saved(4);
  EXPECT_THAT(prune(disk(), saved.folder(), {.last = 1, .every = 2}).text,
              HasSubstr("removed step 3\nremoved step 1\n"));
  EXPECT_EQ(prune(disk(), saved.folder(), {.last = 1, .every = 2}).text, "nothing to remove\n");
  EXPECT_TRUE(fs::exists(saved.at(4)));
  EXPECT_TRUE(fs::exists(saved.at(2)));
  EXPECT_FALSE(fs::exists(saved.at(3)));
}

}  // namespace
}  // namespace zero::checkpoint_tool
