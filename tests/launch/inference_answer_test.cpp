// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/inference_answer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/message_text.h"
#include "launch/plan/model_choice.h"
#include "tests/errors.h"
#include "tests/launch/shell.h"
#include "weights/hf/config.h"

// Rows of zero_plan --inference beside zero_generate --plan.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

InferenceQuestion question_of(const std::string& model, DeviceKind kind, int devices,
                              std::int64_t memory) {
  InferenceQuestion question{.model = model_of(model), .model_text = model, .threads = 1};
  question.machine = {.devices = devices, .kind = kind, .memory = memory, .source = "--cluster"};
  question.tokens = {question.model.context};
  return question;
}

std::string mesh_text(const InferenceRow& row) {
  const MeshShape& shape = row.plan.ranks.shape;
  return fmt::format("{}x{}x{}", shape.replicate, shape.shard, shape.tensor);
}

constexpr const char* kSmall =
    "family=llama,layers=2,width=128,heads=4,kv_heads=2,intermediate=192,context=256,"
    "vocabulary=512";

TEST(InferenceRows, AreTheRowsOfZeroGenerate) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  fmt::print("seed {}\n", seed);
  std::mt19937 random(seed);
  const auto number = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int i = 0; i < 4; ++i) {
    const std::string sizes = fmt::format("layers={},width={},heads=4,context=256,vocabulary={}",
                                          number(1, 3), 128 * number(1, 2), number(100, 900));
    const std::string model =
        number(0, 1) == 0
            ? sizes
            : fmt::format("family=llama,{},kv_heads=2,intermediate={}", sizes, 64 * number(1, 6));
    const int ranks = number(0, 1) == 0 ? 1 : 2;
    InferenceQuestion question = question_of(model, DeviceKind::cpu, ranks, 1'000'000'000);
    question.tokens = {number(2, 256)};
    question.flags.requests = number(1, 12);
    question.flags.block_tokens = 16 * number(1, 4);
    // A request's last token is never read. With a limit zero_generate also has room for what may
    // come again, which would be a block more where that token alone is in one.
    if (question.tokens[0] % question.flags.block_tokens == 1) ++question.tokens[0];
    question.flags.cache_dtype = number(0, 1) == 0 ? "dtype" : "int8";
    const Scratch folder;
    folder.write("config.json", hf_config_text(question.model));
    const InferenceAnswer by_sizes = answer_inference(question);
    question.folder = folder.path();
    const InferenceAnswer by_folder = answer_inference(question);
    ASSERT_EQ(by_sizes.rows.size(), by_folder.rows.size());
    for (std::size_t at = 0; at < by_sizes.rows.size(); ++at) {
      EXPECT_EQ(by_sizes.rows[at].plan.memory, by_folder.rows[at].plan.memory);
    }
    for (int row = 0; row < 3; ++row) {
      const InferenceRow& one =
          by_sizes.rows.at(static_cast<std::size_t>(number(0, std::ssize(by_sizes.rows) - 1)));
      ASSERT_EQ(one.refusal, "") << model;
      const std::string command = fmt::format(
          "{} --plan --model {} --device cpu --dtype {} --weights {} --cache-dtype {} --requests "
          "{} --context {} --block-tokens {} --threads 1 --local-ranks {} --tensor {} --replicate "
          "{} --memory-limit 1GB",
          ZERO_GENERATE, folder.path(), one.flags.dtype, one.flags.weights, one.flags.cache_dtype,
          one.flags.requests, question.tokens[0], one.flags.block_tokens, ranks, one.flags.tensor,
          one.flags.replicate);
      const Outcome plan = shell(folder, command);
      EXPECT_EQ(plan.status, 0) << plan.errors;
      EXPECT_THAT(plan.out, AllOf(HasSubstr(memory_cells(one.plan.memory)),
                                  HasSubstr(fmt::format("or {} of {} tokens at once",
                                                        counted(one.most_requests, "request"),
                                                        question.tokens[0]))))
          << command;
    }
  }
}

TEST(InferenceRows, AreWeightsByTensorRanksAndSharding) {
  const InferenceAnswer answer =
      answer_inference(question_of(kSmall, DeviceKind::cpu, 4, 1'000'000'000));
  std::set<std::string> meshes;
  std::set<std::string> weights;
  for (const InferenceRow& row : answer.rows) {
    meshes.insert(mesh_text(row));
    weights.insert(weights_text(row.plan.options));
    EXPECT_TRUE(row.fits());
  }
  EXPECT_EQ(meshes, (std::set<std::string>{"4x1x1", "1x4x1", "2x1x2", "1x2x2", "1x1x4"}));
  EXPECT_EQ(weights, (std::set<std::string>{"fp32", "bf16", "fp16", "int8 beside bf16",
                                            "nf4 beside bf16", "q4 beside bf16"}));
  EXPECT_EQ(answer.rows.size(), 5 * 6);
  InferenceQuestion one = question_of(kSmall, DeviceKind::cuda, 8, 1'000'000'000);
  one.dtypes = {DType::fp16};
  one.weights = {"dtype", "nf4"};
  const InferenceAnswer gpu = answer_inference(one);
  ASSERT_EQ(gpu.rows.size(), 2);
  EXPECT_EQ(mesh_text(gpu.rows[1]), "1x1x1");
  EXPECT_EQ(weights_text(gpu.rows[1].plan.options), "nf4 beside fp16");
  one.tensors = {2};
  EXPECT_THAT(error_of([&] { answer_inference(one); }),
              AllOf(HasSubstr("--tensor 2: expected"), HasSubstr("a GPU answers alone")));
}

TEST(InferenceRows, HaveTheBytesOfFilesOfBlocks) {
  InferenceQuestion question = question_of(kSmall, DeviceKind::cpu, 2, 1'000'000'000);
  question.weights = {"nf4"};
  EXPECT_EQ(json_of(answer_inference(question))["rows"][0]["file"], 0);
  EXPECT_THAT(text_of(answer_inference(question)), Not(HasSubstr("file")));
  question.flags.offload.folder = "/nvme";
  const InferenceAnswer answer = answer_inference(question);
  for (const InferenceRow& row : answer.rows) {
    ASSERT_EQ(row.refusal, "");
    EXPECT_GT(row.plan.memory.file, 0);
    EXPECT_THAT(text_of(answer), HasSubstr(memory_cells(row.plan.memory)));
  }
  EXPECT_EQ(json_of(answer)["rows"][0]["file"], answer.rows[0].plan.memory.file);
  EXPECT_THAT(text_of(answer), HasSubstr("file: a rank's part of the blocks, in /nvme, beside"));
  question.machine.kind = DeviceKind::cuda;
  question.weights = {"dtype"};
  for (const InferenceRow& row : answer_inference(question).rows) {
    EXPECT_THAT(row.refusal, HasSubstr("a GPU keeps weights in its own; give --device cpu"));
  }
}

TEST(InferenceRows, FitToTheByte) {
  InferenceQuestion question = question_of(kSmall, DeviceKind::cpu, 1, 1'000'000'000);
  question.weights = {"nf4"};
  const std::int64_t bytes = answer_inference(question).rows[0].plan.of_device();
  question.machine.memory = bytes;
  const InferenceAnswer exact = answer_inference(question);
  EXPECT_TRUE(exact.fits());
  EXPECT_EQ(exact.rows[0].most_requests, question.flags.requests);
  EXPECT_THAT(text_of(exact), AllOf(HasSubstr("fits, 0 B free"), Not(HasSubstr("no row fits"))));
  --question.machine.memory;
  const InferenceAnswer less = answer_inference(question);
  EXPECT_FALSE(less.fits());
  EXPECT_EQ(less.rows[0].most_requests, question.flags.requests - 1);
  // The largest class: scratch of the activations is that of the machine's instruction set.
  EXPECT_THAT(text_of(less), AllOf(ContainsRegex("short 1 B; (activations|cache) "),
                                   HasSubstr("no row fits; nf4 beside bf16 holds "
                                             "7 requests: fewer --requests")));
  EXPECT_EQ(json_of(less)["rows"][0]["short_bytes"], 1);
  question.machine.memory = 1000;
  EXPECT_THAT(text_of(answer_inference(question)), HasSubstr("nor one request in any"));
}

// The question of a newcomer: how many requests of 4k tokens an 8B in 4 bits serves in 24 GB.
TEST(InferenceRows, SayHowManyRequestsAnEightBillionServes) {
  InferenceQuestion question =
      question_of("llama-3.1-8b", DeviceKind::cuda, 1, std::int64_t{24'000'000'000});
  question.tokens = {4096};
  question.weights = {"nf4"};
  const InferenceAnswer answer = answer_inference(question);
  const InferenceRow& row = answer.rows.at(0);
  EXPECT_TRUE(row.fits());
  constexpr std::int64_t kRequest = 2LL * 32 * 8 * 128 * 4096 * 2;
  EXPECT_EQ(row.plan.memory.cache, 8 * kRequest);
  const std::int64_t rest = row.plan.of_device() - row.plan.memory.cache;
  EXPECT_NEAR(static_cast<double>(row.most_requests),
              static_cast<double>((24'000'000'000 - rest) / kRequest), 1);
  EXPECT_THAT(text_of(answer), HasSubstr("8 requests of 4096 tokens at once"));
}

TEST(AnswerPlan, OfAGpuSaysWhatIsLeftToLibraries) {
  const GenerateFlags unlimited{};
  GenerateFlags limited;
  limited.memory_limit = 1000;
  AnswerPlan plan;
  EXPECT_EQ(left_of_gpu_text(plan, unlimited), "") << "a CPU";
  plan.ranks.device = DeviceKind::cuda;
  EXPECT_EQ(left_of_gpu_text(plan, unlimited),
            " (free on the GPU; 1.00 GiB more are left to CUDA's libraries, kernels and graphs)");
  EXPECT_EQ(left_of_gpu_text(plan, limited), "");
}

TEST(InferenceRows, ThatAreRefusedNameTheirTensorRanks) {
  InferenceAnswer answer{.question = question_of(kSmall, DeviceKind::cpu, 2, 1'000'000'000)};
  answer.rows.push_back({.refusal = "a share is no whole block"});
  answer.rows.front().flags.weights = "nf4";
  answer.rows.front().flags.tensor = 2;
  EXPECT_THAT(text_of(answer), HasSubstr("tensor 2        refused: a share is no whole block\n"));
  EXPECT_EQ(json_of(answer)["rows"][0]["tensor"], 2);
}

TEST(InferenceRows, TakeLengthsInTurn) {
  InferenceQuestion question = question_of(kSmall, DeviceKind::cpu, 1, 1'000'000'000);
  question.tokens = {256, 16};
  question.weights = {"int8"};
  question.flags.requests = 2;
  const InferenceAnswer answer = answer_inference(question);
  EXPECT_EQ(answer.rows[0].plan.demand.contiguous, 32);
  // The short one ends before the long one has its second block.
  EXPECT_EQ(answer.rows[0].plan.memory.blocks, 16);
}

}  // namespace
}  // namespace zero::testing
