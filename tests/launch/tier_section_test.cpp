// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/config/run_identity.h"
#include "launch/train/tier_lines.h"
#include "tests/launch/config_with.h"

// Where model states are: DeepSpeed's keys of offload and of its disk library.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// On a CPU; keys without a section are of zero_optimization.
std::vector<std::string> keys_of(const std::vector<std::string>& keys) {
  std::vector<std::string> all{"run.device=cpu", "run.threads=1"};
  for (const std::string& key : keys) {
    const bool whole = key.starts_with("aio.") || key.starts_with("run.") ||
                       key.starts_with("activation_checkpointing.");
    all.push_back(whole ? key : "zero_optimization." + key);
  }
  return all;
}
TrainConfig make(const std::vector<std::string>& keys) { return config_with(keys_of(keys)); }
TierOptions tiers(const std::vector<std::string>& keys) { return make(keys).engine.tiers; }
std::string key_refusal(const std::vector<std::string>& keys) {
  return refusal_with(keys_of(keys));
}

/// The same keys in the file, whose answers are told.
std::string file_refusal(const std::string& zero, const std::string& others = "") {
  return error_of([&] {
    const std::string text =
        R"({"model": "gpt2-124m", "data": {"train": "a.bin"}, "train_batch_size": 8)" + others +
        R"(, "zero_optimization": {)" + zero + "}}";
    make_train_config(Configuration::from_json(parse_json_text(text, "c.json"), "c.json",
                                               {"run.threads=1", "run.device=cpu"}),
                      1);
  });
}

const std::vector<std::string> kNvme{"offload_optimizer.device=nvme",
                                     "offload_optimizer.nvme_path=/fast"};
std::vector<std::string> nvme(std::vector<std::string> more) {
  more.insert(more.begin(), kNvme.begin(), kNvme.end());
  return more;
}
std::vector<std::string> shards(std::vector<std::string> more = {}) {
  more.insert(more.begin(),
              {"stage=3", "offload_param.device=nvme", "offload_param.nvme_path=/fast"});
  return more;
}

TEST(OffloadKeys, OfOptimizerStatesBecomeATier) {
  EXPECT_EQ(tiers({}).optimizer, Tier::device);
  EXPECT_EQ(tiers({"offload_optimizer.device=none"}).optimizer, Tier::device);
  EXPECT_EQ(tiers({"offload_optimizer.device=cpu"}).optimizer, Tier::device);
  const TierOptions usual = tiers(kNvme);
  EXPECT_EQ(usual.optimizer, Tier::file);
  EXPECT_EQ(usual.file.folder, "/fast");
  EXPECT_EQ(usual.optimizer_ratio, 1);
  EXPECT_EQ(usual.windows.buffers, 4);
  EXPECT_EQ(usual.windows.buffer_elements, 1 << 20);
  EXPECT_EQ(usual.file.disk, nullptr);
  const TierOptions own =
      tiers(nvme({"offload_optimizer.buffer_count=7", "offload_optimizer.buffer_size=8192",
                  "offload_optimizer.ratio=0.25"}));
  EXPECT_EQ(own.windows.buffers, 7);
  EXPECT_EQ(own.windows.buffer_elements, 8192);
  EXPECT_EQ(own.optimizer_ratio, 0.25);
}

TEST(OffloadKeys, PipelineBothWaysUnlessTold) {
  const auto both = [](const std::vector<std::string>& keys) {
    const StateWindowOptions windows = tiers(nvme(keys)).windows;
    return std::pair(windows.pipeline_read, windows.pipeline_write);
  };
  const std::string read = "offload_optimizer.pipeline_read=";
  const std::string write = "offload_optimizer.pipeline_write=";
  const std::string older = "offload_optimizer.pipeline=";
  EXPECT_EQ(both({}), std::pair(true, true));
  EXPECT_EQ(both({read + "false"}), std::pair(false, true));
  EXPECT_EQ(both({write + "false"}), std::pair(true, false));
  EXPECT_EQ(both({older + "false"}), std::pair(false, false));
  EXPECT_EQ(both({older + "false", write + "true"}), std::pair(false, true));
  EXPECT_EQ(both({older + "true"}), std::pair(true, true));
}

TEST(OffloadKeys, OfTheDiskBecomeThoseOfItsQueue) {
  const TierFileOptions usual = tiers(kNvme).file;
  EXPECT_EQ(usual.block_bytes, 1 << 20);
  EXPECT_EQ(usual.queue.depth, 8);
  EXPECT_EQ(usual.queue.threads, 4);
  EXPECT_FALSE(usual.queue.one_by_one);
  EXPECT_TRUE(usual.overlap_events);
  const TierFileOptions own =
      tiers(nvme({"aio.block_size=8192", "aio.queue_depth=32", "aio.intra_op_parallelism=3",
                  "aio.single_submit=true", "aio.overlap_events=false"}))
          .file;
  EXPECT_EQ(own.block_bytes, 8192);
  EXPECT_EQ(own.queue.depth, 32);
  EXPECT_EQ(own.queue.threads, 3);
  EXPECT_TRUE(own.queue.one_by_one);
  EXPECT_FALSE(own.overlap_events);
  EXPECT_EQ(tiers(nvme({"aio.thread_count=2"})).file.queue.threads, 2);
  EXPECT_EQ(tiers(nvme({"aio.thread_count=2", "aio.intra_op_parallelism=2"})).file.queue.threads,
            2);
  EXPECT_THAT(key_refusal({"aio.thread_count=2", "aio.intra_op_parallelism=3"}),
              HasSubstr("aio.intra_op_parallelism is 3 and aio.thread_count, its older name, 2"));
  EXPECT_EQ(file_refusal("", R"(, "aio": {"block_size": 5000})"),
            "c.json: aio.block_size is 5000, expected a multiple of 4096, in which disks are read "
            "and written; give 8192: --set aio.block_size=8192");
  EXPECT_THAT(key_refusal({"aio.queue_depth=0"}),
              HasSubstr("expected a whole number from 1 to 4096"));
}

TEST(OffloadKeys, OfOlderDeepSpeedMeanTheSame) {
  EXPECT_EQ(make({"cpu_offload=true"}).values.text("zero_optimization.offload_optimizer.device"),
            "cpu");
  EXPECT_EQ(make({"cpu_offload_param=true"}).values.text("zero_optimization.offload_param.device"),
            "cpu");
  EXPECT_EQ(key_refusal({"cpu_offload=true", "offload_optimizer.device=cpu"}), "no error");
  EXPECT_EQ(key_refusal(nvme({"cpu_offload=false"})), "no error");
  EXPECT_EQ(file_refusal(R"("cpu_offload": true, "offload_optimizer": {"device": "none"})"),
            "c.json: zero_optimization.cpu_offload is true, which is "
            "zero_optimization.offload_optimizer.device \"cpu\", but that is \"none\"; leave the "
            "first out: --set zero_optimization.cpu_offload=null");
}

TEST(OffloadKeys, OfNvmeNeedAFolder) {
  EXPECT_EQ(file_refusal(R"("offload_optimizer": {"device": "nvme"})"),
            "c.json: zero_optimization.offload_optimizer.device is \"nvme\" without "
            "zero_optimization.offload_optimizer.nvme_path: give the folder, on a local disk of "
            "each host, in which every rank has a file: --set "
            "zero_optimization.offload_optimizer.nvme_path=FOLDER");
  EXPECT_THAT(key_refusal(nvme({"offload_optimizer.ratio=1.5"})), HasSubstr("from 0 to 1"));
  EXPECT_THAT(key_refusal(nvme({"offload_optimizer.buffer_count=0"})), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(key_refusal(nvme({"offload_optimizer.buffer_size=4095"})), HasSubstr("from 4096"));
  EXPECT_THAT(key_refusal({"offload_optimizer.device=disk"}),
              HasSubstr("expected one of \"none\", \"cpu\", \"nvme\", \"auto\""));
}

TEST(OffloadKeys, OfParametersBecomeATierOfTheirOwn) {
  for (const char* const memory : {"none", "cpu"}) {
    const TierOptions in_memory =
        tiers({"stage=3", std::string("offload_param.device=") + memory,
               "offload_param.nvme_path=/fast", "offload_param.buffer_count=3"});
    EXPECT_EQ(in_memory.parameters, Tier::device) << memory;
    EXPECT_FALSE(uses_file(in_memory)) << memory;
  }
  EXPECT_EQ(tiers(nvme({"stage=3"})).parameters, Tier::device);
  const TierOptions usual = tiers(shards());
  EXPECT_EQ(usual.parameters, Tier::file);
  EXPECT_EQ(usual.optimizer, Tier::device);
  EXPECT_EQ(usual.file.folder, "/fast");
  EXPECT_EQ(usual.parameters_in_memory, 0);
  EXPECT_EQ(usual.fetch_buffers, 2);
  const TierOptions own =
      tiers(shards({"offload_param.buffer_count=5", "offload_param.max_in_cpu=1e9",
                    "offload_param.buffer_size=1e8", "aio.queue_depth=32"}));
  EXPECT_EQ(own.fetch_buffers, 5);
  EXPECT_EQ(own.parameters_in_memory, 1'000'000'000);
  EXPECT_EQ(own.file.queue.depth, 32);
  EXPECT_THAT(key_refusal(shards({"offload_param.buffer_count=0"})), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(key_refusal(shards({"offload_param.max_in_cpu=-1"})), HasSubstr("from 0"));
}

// Below stage 3 a rank has no shards of parameters: DeepSpeed ignores the section there.
TEST(OffloadKeys, OfParametersChangeNothingBelowStage3) {
  for (const int stage : {0, 1, 2}) {
    const std::string text = "stage=" + std::to_string(stage);
    for (const char* const device : {"cpu", "nvme"}) {
      EXPECT_EQ(tiers({text, fmt::format("offload_param.device={}", device)}).parameters,
                Tier::device)
          << stage;
    }
  }
}

TEST(OffloadKeys, OfBothSectionsHaveOneFolder) {
  const std::string both = R"("stage": 3, "offload_optimizer": {"device": "nvme")";
  const auto folder = [](const std::vector<std::string>& paths) {
    std::vector<std::string> keys{"stage=3", "offload_optimizer.device=nvme",
                                  "offload_param.device=nvme"};
    keys.insert(keys.end(), paths.begin(), paths.end());
    return tiers(keys).file.folder;
  };
  EXPECT_EQ(folder({"offload_optimizer.nvme_path=/a"}), "/a");
  EXPECT_EQ(folder({"offload_param.nvme_path=/b"}), "/b");
  EXPECT_EQ(folder({"offload_optimizer.nvme_path=/a", "offload_param.nvme_path=/a/"}), "/a");
  EXPECT_EQ(file_refusal(both + R"(, "nvme_path": "/a"},
                                   "offload_param": {"device": "nvme", "nvme_path": "/b"})"),
            "c.json: zero_optimization.offload_optimizer.nvme_path is \"/a\" and "
            "zero_optimization.offload_param.nvme_path \"/b\", but a rank has one file for both; "
            "give one folder, or leave the second out: --set "
            "zero_optimization.offload_param.nvme_path=null");
  EXPECT_THAT(file_refusal(both + R"(}, "offload_param": {"device": "nvme"})"),
              EndsWith("--set zero_optimization.offload_optimizer.nvme_path=FOLDER"));
  EXPECT_THAT(file_refusal(R"("stage": 3, "offload_param": {"device": "nvme"})"),
              EndsWith("--set zero_optimization.offload_param.nvme_path=FOLDER"));
  // A path of a section that has no file is none.
  EXPECT_THAT(file_refusal(both + R"(}, "offload_param": {"device": "cpu", "nvme_path": "/b"})"),
              EndsWith("--set zero_optimization.offload_optimizer.nvme_path=FOLDER"));
}

TEST(OffloadKeys, NameTheKeyOfTheirFolder) {
  const auto key = [](const std::vector<std::string>& keys) {
    return tier_folder_key(make(keys).values);
  };
  const std::string zero = "zero_optimization.";
  EXPECT_EQ(key(kNvme), zero + "offload_optimizer.nvme_path");
  EXPECT_EQ(key(shards()), zero + "offload_param.nvme_path");
  EXPECT_EQ(key(nvme(shards())), zero + "offload_optimizer.nvme_path");
  EXPECT_EQ(key(shards({"offload_optimizer.device=nvme"})), zero + "offload_param.nvme_path");
}

/// Of a GPU.
TrainConfig gpu_config(const std::string& section) {
  return make_train_config(
      Configuration::from_json(
          parse_json_text(R"({"model": "gpt2-124m", "data": {"train": "a.bin"}, )"
                          R"("train_batch_size": 8, "zero_optimization": {)" +
                              section + "}}",
                          "c.json"),
          "c.json", {"run.device=cuda"}),
      1);
}

TEST(OffloadKeys, OfAGpuPutOptimizerStatesIntoHostMemory) {
  const auto config = gpu_config;
  EXPECT_EQ(config("").engine.tiers.optimizer, Tier::device);
  EXPECT_EQ(config(R"("cpu_offload": true)").engine.tiers.optimizer, Tier::host);
  const TrainConfig found = config(
      R"("offload_optimizer": {"device": "cpu", "ratio": 0.5, "buffer_count": 3, "buffer_size": 8192,
                               "pipeline_read": false, "nvme_path": "/a"})");
  const TierOptions& asked = found.engine.tiers;
  EXPECT_EQ(asked.optimizer, Tier::host);
  EXPECT_EQ(asked.parameters, Tier::device);
  EXPECT_EQ(asked.optimizer_ratio, 0.5);
  EXPECT_EQ(asked.windows.buffers, 3);
  EXPECT_EQ(asked.windows.buffer_elements, 8192);
  EXPECT_FALSE(asked.windows.pipeline_read);
  EXPECT_TRUE(asked.windows.pipeline_write);
  EXPECT_THAT(
      tier_lines(found),
      ElementsAre("optimizer states of whole units, 50 % of the elements at most, are in "
                  "pinned host memory, updated in 3 windows in the GPU's of 8192 elements, or of "
                  "the longest share of a unit if that is shorter",
                  HasSubstr("offload_optimizer.nvme_path changes nothing")));
}

TEST(OffloadKeys, OfAGpuPutShardsOfParametersIntoHostMemoryAtStage3) {
  EXPECT_EQ(gpu_config(R"("stage": 3)").engine.tiers.parameters, Tier::device);
  EXPECT_EQ(gpu_config(R"("stage": 3, "cpu_offload_param": true)").engine.tiers.parameters,
            Tier::host);
  const TrainConfig found = gpu_config(
      R"("stage": 3, "offload_param": {"device": "cpu", "buffer_count": 3, "max_in_cpu": 5,
                                       "nvme_path": "/a"})");
  EXPECT_EQ(found.engine.tiers.parameters, Tier::host);
  EXPECT_EQ(found.engine.tiers.optimizer, Tier::device);
  EXPECT_EQ(found.engine.tiers.fetch_buffers, 3);
  EXPECT_EQ(found.engine.tiers.parameters_in_memory, 5);
  EXPECT_THAT(
      tier_lines(found),
      ElementsAre("shards of parameters, but for whole units of 5 elements of a rank at most, are "
                  "in pinned host memory, copied into 3 buffers of the GPU's before their gathers",
                  HasSubstr("offload_param.nvme_path changes nothing")));
  const TrainConfig below = gpu_config(R"("stage": 2, "offload_param": {"device": "cpu"})");
  EXPECT_EQ(below.engine.tiers.parameters, Tier::device);
  EXPECT_THAT(tier_lines(below),
              ElementsAre("zero_optimization.offload_param.device \"cpu\" changes nothing: ranks "
                          "have shards of parameters, which host memory can hold, at stage 3, not "
                          "at stage 2"));
}

TEST(OffloadKeys, OfAGpuPutBothIntoFiles) {
  const TrainConfig found = gpu_config(
      R"("stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/a"},
         "offload_param": {"device": "nvme"})");
  EXPECT_EQ(found.engine.tiers.optimizer, Tier::file);
  EXPECT_EQ(found.engine.tiers.parameters, Tier::file);
  EXPECT_EQ(found.engine.tiers.file.folder, "/a");
  const TrainConfig mixed = gpu_config(
      R"("stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/a"},
         "offload_param": {"device": "cpu"})");
  EXPECT_EQ(mixed.engine.tiers.optimizer, Tier::file);
  EXPECT_EQ(mixed.engine.tiers.parameters, Tier::host);
}

// A run may go on with its states elsewhere.
TEST(OffloadKeys, AreNoPartOfARunsIdentity) {
  for (const std::string& key : identity_keys()) {
    EXPECT_THAT(key, AllOf(Not(HasSubstr("offload")), Not(HasSubstr("aio."))));
  }
}

TEST(OffloadKeys, SayWhatHasNoEffectOnACpu) {
  const auto lines = [](const std::vector<std::string>& keys) { return tier_lines(make(keys)); };
  EXPECT_THAT(lines({}), IsEmpty());
  EXPECT_THAT(lines({"offload_optimizer.device=none", "offload_param.device=none"}), IsEmpty());
  EXPECT_THAT(lines({"offload_optimizer.device=cpu"}),
              ElementsAre("zero_optimization.offload_optimizer.device \"cpu\" changes nothing: "
                          "what optimizers keep is in host memory on a CPU in any case"));
  EXPECT_THAT(lines({"offload_optimizer.nvme_path=/fast", "offload_optimizer.pin_memory=true"}),
              ElementsAre("zero_optimization.offload_optimizer.nvme_path changes nothing: "
                          "zero_optimization.offload_optimizer.device is \"none\", and \"nvme\" "
                          "alone puts states in files"));
  EXPECT_THAT(lines({"cpu_offload=true", "offload_optimizer.ratio=0.5",
                     "offload_optimizer.buffer_count=7", "offload_optimizer.pipeline_read=null"}),
              ElementsAre(HasSubstr("what optimizers keep"),
                          AllOf(HasSubstr("offload_optimizer.buffer_count, "),
                                HasSubstr("offload_optimizer.ratio change nothing: "),
                                HasSubstr("device is \"cpu\""), Not(HasSubstr("pipeline")))));
  EXPECT_THAT(lines({"cpu_offload_param=true"}),
              ElementsAre(HasSubstr("offload_param.device \"cpu\" changes nothing")));
  EXPECT_THAT(lines({"activation_checkpointing.cpu_checkpointing=true"}),
              ElementsAre(HasSubstr("cpu_checkpointing changes nothing")));
  EXPECT_THAT(lines({"aio.queue_depth=4"}),
              ElementsAre("aio changes nothing: no states are on NVMe"));
  EXPECT_THAT(lines(nvme({"aio.queue_depth=4"})),
              ElementsAre("optimizer states are in a file of each rank in /fast, updated in 4 "
                          "windows of 1048576 elements, or of the longest share of a unit if that "
                          "is shorter"));
  EXPECT_THAT(
      lines(nvme({"offload_optimizer.ratio=0.5"})),
      ElementsAre(HasSubstr("optimizer states of whole units, 50 % of the elements at most, are "
                            "in a file")));
  EXPECT_THAT(lines({"stage=3", "offload_param.max_in_cpu=5", "offload_param.buffer_size=9"}),
              ElementsAre("zero_optimization.offload_param.max_in_cpu changes nothing: "
                          "zero_optimization.offload_param.device is \"none\", and \"nvme\" alone "
                          "puts parameters in files"));
}

TEST(OffloadKeys, SayWhatHasItsPlaceInAFile) {
  const auto lines = [](const std::vector<std::string>& keys) { return tier_lines(make(keys)); };
  const std::string shards_line =
      "shards of parameters are in a file of each rank in /fast, read into 2 buffers before their "
      "gathers";
  EXPECT_THAT(lines(shards({"aio.queue_depth=4"})), ElementsAre(shards_line));
  EXPECT_THAT(lines(nvme(shards())),
              ElementsAre(HasSubstr("optimizer states are in a file"), shards_line));
  EXPECT_THAT(lines(shards({"offload_param.max_in_cpu=5", "offload_param.buffer_count=1"})),
              ElementsAre("shards of parameters, but for whole units of 5 elements of a rank at "
                          "most, are in a file of each rank in /fast, read into 1 buffer before "
                          "their gathers"));
  // Updates of shards in the file go through the windows of optimizer states.
  EXPECT_THAT(lines(shards({"offload_optimizer.buffer_count=7", "offload_optimizer.ratio=0.5"})),
              ElementsAre(AllOf(HasSubstr("zero_optimization.offload_optimizer.ratio changes "),
                                Not(HasSubstr("buffer_count"))),
                          shards_line));
  EXPECT_THAT(lines({"stage=2", "offload_param.device=nvme", "offload_param.nvme_path=/fast"}),
              ElementsAre("zero_optimization.offload_param.device \"nvme\" changes nothing: ranks "
                          "have shards of parameters, which files can hold, at stage 3, not at "
                          "stage 2"));
}

}  // namespace
}  // namespace zero::testing
