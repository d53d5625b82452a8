// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/run_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/config_with.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::ordered_json identity(const std::vector<std::string>& overrides, int world = 1,
                                const std::vector<std::string>& data = {"10 tokens"}) {
  return identity_of(testing::config_with(overrides, world).values, data);
}

TEST(RunIdentity, IsTheSameWhereOnlyTheWayOfComputingDiffers) {
  const auto plain = identity({});
  EXPECT_EQ(plain, identity({"zero_optimization.stage=3", "run.threads=2"}, 4));
  EXPECT_EQ(plain, identity({"mesh.tensor=2", "mesh.replicate=2"}, 4));
  EXPECT_EQ(plain, identity({"train_micro_batch_size_per_gpu=2"}));
  EXPECT_EQ(plain, identity({"run.steps=7", "run.log=other.log", "run.nonfinite=skip",
                             "run.validation_sequences=2", "data.train=b.bin"}));
  EXPECT_EQ(plain, identity({"zero_optimization.reduce_bucket_size=64"}));
}

TEST(RunIdentity, NamesEachKeyThatDiffersAndBothValues) {
  const auto saved = identity({});
  EXPECT_THAT(changed_identity(saved, saved, {}), ElementsAre());
  const auto other = identity({"optimizer.params.lr=0.5", "run.seed=3", "model.width=32"}, 1,
                              {"11 tokens", "12 tokens"});
  EXPECT_THAT(
      error_of([&] { changed_identity(saved, other, {}); }),
      AllOf(HasSubstr("optimizer.params.lr is 0.001 in the checkpoint and 0.5 in this run"),
            HasSubstr("run.seed is 1 in the checkpoint and 3 in this run"),
            HasSubstr("model.width is 64 in the checkpoint and 32 in this run"),
            HasSubstr("data.train is [\"10 tokens\"] in the checkpoint and [\"11 tokens\",\"12 "
                      "tokens\"] in this run"),
            HasSubstr("a checkpoint of another model cannot go on: give the checkpoint's "
                      "values, or start afresh"),
            Not(HasSubstr("run.resume_changes"))));
  const std::vector<std::string> some{"run.seed", "data.train", "model.width"};
  EXPECT_THAT(error_of([&] { changed_identity(saved, other, some); }),
              AllOf(HasSubstr("optimizer.params.lr"), Not(HasSubstr("run.seed"))));
  const std::vector<std::string> all{"run.seed", "data.train", "model.width",
                                     "optimizer.params.lr"};
  EXPECT_EQ(changed_identity(saved, other, all).size(), 4U);
  EXPECT_THAT(changed_identity(saved, saved, all), ElementsAre());
}

TEST(RunIdentity, AdvisesOnlyOfThatWhichCanWork) {
  const auto advice = [](const std::vector<std::string>& was, const std::vector<std::string>& is) {
    return error_of([&] { changed_identity(identity(was), identity(is), {}); });
  };
  EXPECT_THAT(advice({}, {"run.seed=3", "optimizer.params.lr=0.5"}),
              HasSubstr("or name run.seed, optimizer.params.lr in run.resume_changes to go on"));
  const auto moments = AllOf(HasSubstr("start with its weights: run.init=CHECKPOINT/weights"),
                             Not(HasSubstr("run.resume_changes")));
  EXPECT_THAT(advice({}, {"optimizer.type=SGD"}), moments);
  const std::string sgd = "optimizer.type=SGD";
  EXPECT_THAT(advice({sgd}, {sgd, "optimizer.params.momentum=0.9"}), moments);
  EXPECT_THAT(
      advice({sgd, "optimizer.params.momentum=0.8"}, {sgd, "optimizer.params.momentum=0.9"}),
      HasSubstr("name optimizer.params.momentum in run.resume_changes"));
}

TEST(RunIdentity, HoldsTheFormatOfMomentsUnlessItIsFp32) {
  const std::string key = "optimizer.params.moments";
  EXPECT_EQ(identity({}), identity({key + "=fp32"}));
  const auto coded = identity({key + "=8bit"});
  EXPECT_THAT(error_of([&] { changed_identity(identity({}), coded, {}); }),
              AllOf(HasSubstr(key + " is \"fp32\" in the checkpoint and \"8bit\" in this run"),
                    HasSubstr("or name " + key + " in run.resume_changes to go on")));
  EXPECT_THAT(error_of([&] { changed_identity(coded, identity({key + "=bf16"}), {}); }),
              HasSubstr(key + " is \"8bit\" in the checkpoint and \"bf16\" in this run"));
  EXPECT_EQ(changed_identity(identity({}), coded, std::vector{key}).size(), 1U);
}

TEST(RunIdentity, LeavesLengthsOfASchedulesThatFollowTheSteps) {
  const auto keys = [](const std::vector<std::string>& overrides) {
    const char* text =
        R"({"model": {"layers": 2, "width": 64, "heads": 4, "context": 32, "vocabulary": 256},
            "data": {"train": "a.bin"}, "train_batch_size": 8})";
    return keys_of_length(
        make_train_config(
            Configuration::from_json(parse_json_text(text, "c.json"), "c.json", overrides), 1)
            .values);
  };
  const std::string wsd = "scheduler.type=wsd";
  EXPECT_THAT(keys({}), ElementsAre());
  EXPECT_THAT(keys({"scheduler.type=cosine"}), ElementsAre("scheduler.params.total_num_steps"));
  EXPECT_THAT(keys({wsd}),
              ElementsAre("scheduler.params.total_num_steps", "scheduler.params.decay_num_steps"));
  EXPECT_THAT(keys({wsd, "scheduler.params.total_num_steps=100"}),
              ElementsAre("scheduler.params.decay_num_steps"));
}

TEST(RunIdentity, IsTheSameForEqualNumbersAndWhateverFollowsTheSteps) {
  const std::vector<std::string> lengths{"scheduler.params.total_num_steps"};
  const nlohmann::ordered_json saved{{"betas", {0, 0.95}}, {lengths[0], 20}};
  nlohmann::ordered_json current{{lengths[0], 40}, {"betas", {0.0, 0.95}}};
  EXPECT_TRUE(same_identity(saved, current, lengths));
  EXPECT_FALSE(same_identity(saved, current, {})) << "a length that the user has given";
  current["betas"] = {0.9, 0.95};
  EXPECT_FALSE(same_identity(saved, current, lengths));
}

TEST(RunIdentity, ShowsKeysThatOneSideDoesNotHave) {
  const auto gpt2 = identity({});
  auto newer = gpt2;
  newer["model.sliding_window"] = 512;
  EXPECT_THAT(error_of([&] { changed_identity(gpt2, newer, {}); }),
              HasSubstr("model.sliding_window is not set in the checkpoint and 512 in this run"));
  EXPECT_THAT(error_of([&] { changed_identity(newer, gpt2, {}); }),
              HasSubstr("model.sliding_window is 512 in the checkpoint and not set in this run"));
}

TEST(RunIdentity, HoldsTheLossScaleOfFp16RunsAlone) {
  EXPECT_EQ(identity({"fp16.hysteresis=5", "fp16.enabled=false"}), identity({}));
  const auto fp16 = identity({"fp16.enabled=true"});
  EXPECT_EQ(fp16.size(), identity({}).size() + 7);
  EXPECT_NE(fp16, identity({"fp16.enabled=true", "fp16.hysteresis=5"}));
  const auto fixed = identity({"fp16.enabled=true", "fp16.loss_scale=128"});
  EXPECT_NE(fixed, fp16);
  EXPECT_EQ(fixed, identity({"fp16.enabled=true", "fp16.loss_scale=128", "fp16.hysteresis=5"}));
}

TEST(RunIdentity, HoldsEveryKeyOfModelOptimizerAndSchedule) {
  const std::vector<std::string> keys = identity_keys();
  for (const char* key :
       {"data.train", "data.sequence_length", "data.shuffle", "run.seed", "run.sums", "reduction",
        "train_batch_size", "gradient_clipping", "bf16.enabled", "data_types.grad_accum_dtype",
        "model.layers", "model.rope_theta", "optimizer.type", "optimizer.params.betas",
        "scheduler.type", "scheduler.params.total_num_steps"}) {
    EXPECT_THAT(keys, ::testing::Contains(key));
  }
  for (const char* key : {"model.name", "model.hf", "run.steps", "zero_optimization.stage",
                          "mesh.tensor", "run.threads", "gradient_accumulation_steps"}) {
    EXPECT_THAT(keys, Not(::testing::Contains(key)));
  }
}

}  // namespace
}  // namespace zero
