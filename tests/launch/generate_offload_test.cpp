// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// What zero_generate plans, reads of DeepSpeed's files and tells of blocks in files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "inference/inference_model.h"
#include "inference/model_folder.h"
#include "launch/generate/answer_plan.h"
#include "launch/generate/deepspeed_inference.h"
#include "launch/generate/generate_flags.h"
#include "launch/generate/offload_text.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Plans of a Llama of 16 blocks whose folder holds its config.json and nothing else.
class OffloadPlans : public ::testing::Test {
 protected:
  OffloadPlans() {
    std::string config = file_bytes(ZERO_RECORDED_FILES "/llama_tiny/config.json");
    const std::string layers = "\"num_hidden_layers\": ";
    config.replace(config.find(layers), layers.size() + 1, layers + "16");
    folder_.write("config.json", config);
    flags_.plan = true;
    flags_.requests = 1;
  }
  AnswerPlan plan(int world = 1, DeviceKind device = DeviceKind::cpu) {
    return plan_answers({.flags = flags_,
                         .folder = folder_.path(),
                         .requests = {{1, 15}},
                         .world = world,
                         .device = device,
                         .tell = [](const std::string& /*line*/) {}});
  }

  Scratch folder_;
  GenerateFlags flags_;
};

TEST_F(OffloadPlans, HaveTheBytesOfBothTiers) {
  const AnswerPlan memory = plan();
  EXPECT_EQ(memory.memory.file, 0);
  EXPECT_THAT(plan_text(memory, flags_), Not(HasSubstr("file")));
  flags_.offload.folder = "/nowhere";
  const AnswerPlan file = plan();
  EXPECT_GT(file.memory.file, 0);
  EXPECT_EQ(file.memory.file % TierFile::kBlock, 0);
  EXPECT_LT(file.memory.weights, memory.memory.weights);
  EXPECT_EQ(file.memory.total() - file.memory.windows - file.memory.weights,
            memory.memory.total() - memory.memory.weights)
      << "all else is as without files";
  const std::string text = plan_text(file, flags_);
  EXPECT_THAT(text, AllOf(HasSubstr(memory_header(file.memory)), HasSubstr("        file\n"),
                          HasSubstr(memory_cells(file.memory) + "\n"),
                          HasSubstr("in /nowhere, beside memory; each pass reads it once\n")));
  const AnswerPlan two = plan(2);
  EXPECT_LT(two.memory.file, file.memory.file);
}

TEST_F(OffloadPlans, HaveWindowsOnOneRankToo) {
  flags_.windows = 1;
  EXPECT_THAT(error_of([&] { (void)plan(); }), HasSubstr("--windows 1: windows hold blocks"));
  flags_.offload.folder = "/nowhere";
  const std::int64_t one = plan().memory.windows;
  flags_.windows = 2;
  EXPECT_EQ(plan().memory.windows - one, one - TierFile::kBlock) << "a block is for alignment";
}

TEST_F(OffloadPlans, KeepTheDraftInMemory) {
  flags_.draft = folder_.path();
  const AnswerPlan memory = plan();
  flags_.offload.folder = "/nowhere";
  const AnswerPlan file = plan();
  EXPECT_EQ(file.draft, memory.draft);
  EXPECT_TRUE(file.draft_options.block_file.folder.empty());
  EXPECT_GT(file.memory.file, 0);
}

TEST_F(OffloadPlans, AreOfCpus) {
  flags_.offload.folder = "/nowhere";
  EXPECT_THAT(error_of([&] { (void)plan(1, DeviceKind::cuda); }),
              AllOf(HasSubstr("--offload-weights /nowhere: blocks in files are read into host "
                              "memory, and a GPU keeps weights in its own"),
                    HasSubstr("give --device cpu")));
}

TEST_F(OffloadPlans, LetAutoTakeMoreBits) {
  flags_.offload.folder = "/nowhere";
  flags_.weights = "dtype";
  flags_.memory_limit = plan().memory.total();
  flags_.weights = "auto";
  EXPECT_EQ(plan().options.weights, WeightFormat::plain);
  flags_.offload.folder = "";
  EXPECT_FALSE(plan().options.weights == WeightFormat::plain &&
               plan().options.dtype == DType::fp32);
}

TEST_F(OffloadPlans, AreOfferedWhereMemoryIsShort) {
  flags_.offload.folder = "/nowhere";
  flags_.weights = "dtype";
  flags_.memory_limit = plan().memory.total();
  flags_.offload.folder = "";
  EXPECT_THAT(plan().shortage, HasSubstr("--offload-weights FOLDER, on a disk: "));
}

/// Files for DeepSpeed's inference that ask for NVMe.
class OffloadKeys : public ::testing::Test {
 protected:
  std::vector<std::string> apply(const std::string& text) {
    return apply_deepspeed_inference(folder_.write("ds.json", text), flags_);
  }

  Scratch folder_;
  GenerateFlags flags_;
};

// As in DeepSpeed's examples of ZeRO-Inference.
TEST_F(OffloadKeys, TakeEffect) {
  const std::vector<std::string> lines = apply(R"({
      "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "pin_memory": true,
        "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 1e9}},
      "aio": {"block_size": 262144, "queue_depth": 32, "thread_count": 2, "single_submit": true,
        "overlap_events": false}})");
  EXPECT_EQ(flags_.offload.folder, "/local_nvme");
  EXPECT_EQ(flags_.offload.block_bytes, 262144);
  EXPECT_EQ(flags_.offload.queue.depth, 32);
  EXPECT_EQ(flags_.offload.queue.threads, 2);
  EXPECT_TRUE(flags_.offload.queue.one_by_one);
  EXPECT_FALSE(flags_.offload.overlap_events);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], HasSubstr("--offload-weights /local_nvme"));
  EXPECT_THAT(lines[1], AllOf(HasSubstr("offload_param.buffer_count (--windows says"),
                              HasSubstr("offload_param.buffer_size ("), Not(HasSubstr("aio"))));
}

TEST_F(OffloadKeys, ComeBehindTheCommandLine) {
  flags_.given = {"--offload-weights"};
  flags_.offload.folder = "/mine";
  const std::vector<std::string> lines = apply(
      R"({"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/theirs"}},
          "aio": {"queue_depth": 3}})");
  EXPECT_EQ(flags_.offload.folder, "/mine");
  EXPECT_EQ(flags_.offload.queue.depth, 3);
  EXPECT_THAT(lines[0], HasSubstr("--offload-weights of the command line instead of /theirs"));
}

TEST_F(OffloadKeys, ChangeNothingWithoutNvmeAndSaySo) {
  const std::vector<std::string> lines = apply(
      R"({"zero_optimization": {"offload_param": {"device": "none", "nvme_path": "/fast"}},
          "aio": {"queue_depth": 3}})");
  EXPECT_TRUE(flags_.offload.folder.empty());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("changes nothing here: "), HasSubstr("nvme_path ("),
                              HasSubstr("aio.queue_depth (no weights are in files)")));
}

TEST_F(OffloadKeys, AreRefusedByName) {
  const auto refusal = [&](const std::string& text) { return error_of([&] { apply(text); }); };
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})"),
              HasSubstr("offload_param.device is \"nvme\" without zero_optimization.offload_param."
                        "nvme_path; give the folder"));
  EXPECT_THAT(refusal(R"({"zero_optimization": {"offload_param": {"device": "cpu"}}})"),
              HasSubstr("offload_param.device: found \"cpu\"; weights stay in device memory, or "
                        "\"nvme\" has them in files"));
  EXPECT_THAT(refusal(R"({"aio": {"block_size": 5000}})"),
              HasSubstr("aio.block_size is 5000, expected a multiple of 4096, in which disks are "
                        "read; give 8192"));
  EXPECT_THAT(refusal(R"({"aio": {"queue_depth": 0, "use_gds": true}})"),
              AllOf(HasSubstr("aio.queue_depth: found 0"), HasSubstr("aio.use_gds: found true")));
}

TEST(OffloadText, SaysHowManyRequestsHideTheDisk) {
  PassTimes times;
  EXPECT_THAT(offload_text({}, times, ""), IsEmpty());
  const BlockReads reads{.pass_bytes = 2'000'000'000, .bytes = 6'000'000'000, .seconds = 3};
  EXPECT_EQ(offload_text(reads, times, " of the first rank"),
            "blocks from the disk of the first rank: 2.00 GB a pass at 2.00 GB/s, 1 s");
  for (const int rows : {1, 9}) times.add(rows, 0.1 + 0.01 * rows, 1.25);
  EXPECT_EQ(offload_text(reads, times, ""),
            "blocks from the disk: 2.00 GB a pass at 2.00 GB/s, 1 s; a pass of 5 tokens took 1.25 "
            "s on average, of which 0.15 s computing; about 90 requests at once would hide the "
            "disk (--requests)");
  const BlockReads slow{.pass_bytes = 20'000'000'000, .bytes = 20'000'000'000, .seconds = 10};
  EXPECT_THAT(offload_text(slow, times, ""),
              HasSubstr("about 990 requests at once would hide the disk (more than the 512 that "
                        "--requests takes)"));
  // A pass that computes nearly nothing: more requests than any count holds.
  PassTimes idle;
  idle.add(1, 1e-300, 1);
  EXPECT_THAT(offload_text(slow, idle, ""), HasSubstr("; about 1000000000000000 requests at once"));
  const BlockReads fast{.pass_bytes = 1'000'000, .bytes = 1'000'000, .seconds = 0.001};
  EXPECT_THAT(offload_text(fast, times, ""), HasSubstr("computing hides the disk"));
}

}  // namespace
}  // namespace zero::testing
