// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Files written for DeepSpeed, and what a user is told of them: everything at once, in the file's
// own words.
#include "launch/config/refusals.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/launch/config_with.h"
#include "tests/launch/read_configuration.h"

namespace zero {
namespace {

using testing::config_with;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read;
using testing::refusal;
using testing::refusal_with;

TEST(Configuration, MessagesHaveTheKeysNamesOfTheFile) {
  EXPECT_EQ(refusal(R"("bfloat16": {"enabled": 1})"),
            "c.json: bfloat16.enabled: found 1, expected true or false; the default is false");
  EXPECT_THAT(refusal(R"("bfloat16": true)"), HasSubstr("c.json: bfloat16: found true"));
  EXPECT_THAT(refusal(R"("zero_optimization": {"max_reuse_distance": -1})"),
              HasSubstr("c.json: zero_optimization.max_reuse_distance: found -1"));
  EXPECT_THAT(refusal("", {"bfloat16.enabled=2"}), HasSubstr("--set: bfloat16.enabled: found 2"));
  // A data type's name is no key.
  EXPECT_THAT(refusal(R"("bfloat16": {"enabled": true},
                         "data_types": {"grad_accum_dtype": "fp8"})"),
              HasSubstr("one of \"fp32\", \"bf16\", \"fp16\""));
}

TEST(Configuration, AllRefusalsOfAFileComeAtOnce) {
  EXPECT_EQ(
      refusal(R"("run": {"steps": "ten", "sede": 1}, "amp": {"enabled": true})", {"run.log="}),
      "c.json: 4 refusals:\n"
      "  - amp is not offered: fp16.enabled and bf16.enabled decide what is computed in which "
      "type; "
      "leave it out or set amp.enabled to false\n"
      "  - --set: run.log: found \"\", expected a text or null; the default is \"run.log\"\n"
      "  - unknown key \"run.sede\"; did you mean \"run.seed\"?\n"
      "  - run.steps: found \"ten\", expected a whole number from 0; the default is 100");
}

TEST(Configuration, SeveralAutosAreOneLineToCopy) {
  EXPECT_EQ(refusal(R"("fp16": {"enabled": "auto"}, "gradient_clipping": "auto",
                       "optimizer": {"params": {"betas": "auto"}},
                       "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}},
                       "zero_optimization": {"reduce_bucket_size": "auto"})"),
            "c.json: 3 values are \"auto\", which only a surrounding framework can fill in; put "
            "your own in the place of these defaults: --set fp16.enabled=false "
            "gradient_clipping=1.0 'optimizer.params.betas=[0.9,0.999]' "
            "train_micro_batch_size_per_gpu=1");
  EXPECT_THAT(
      refusal(R"("gradient_clipping": "auto", "fp16": {"enabled": "auto"}, "train_batch_size": 3)"),
      Not(HasSubstr("train_micro")));
}

TEST(Configuration, TheRateAfterWarmupIsTheOptimizersIfAFrameworkWouldFillItIn) {
  const std::string key = "scheduler.params.warmup_max_lr";
  for (const auto& [value, rate] : {std::pair{"auto", 2e-5}, {"null", 0.001}, {"0.5", 0.5}}) {
    const TrainConfig config = config_with(
        {"optimizer.params.lr=2e-5", "scheduler.type=WarmupDecayLR", key + "=" + value});
    EXPECT_EQ(rate, config.values.number(key)) << value;
  }
}

TEST(Configuration, RemarksAreNoKeys) {
  const Configuration values = read(R"("_comment": "of mine", "run": {"//": [1], "steps": 3})");
  EXPECT_EQ(3, values.integer("run.steps"));
  EXPECT_EQ("c.json: read as remarks: _comment, run.//", values.note());
}

TEST(Configuration, SectionsThatAreSwitchedOffAreAccepted) {
  for (const char* section :
       {R"("curriculum_learning": {"enabled": false, "params": {"enabled": true}})",
        R"("data_efficiency": {"enabled": false, "data_sampling": {"num_epochs": 3}})",
        R"("progressive_layer_drop": {"enabled": false, "theta": 0.5})",
        R"("eigenvalue": {"enabled": false})", R"("comms_config": {"a": 1})",
        R"("compression_training": {"layer_reduction": {"enabled": false},
            "weight_quantization": {"shared_parameters": {"enabled": false, "bits": 8}}})",
        R"("monitor_config": {"tensorboard": {"enabled": true}})", R"("sparse_attention": null)",
        R"("scheduler": {"type": "WarmupLR", "params": {"last_batch_iteration": -1}})",
        R"("activation_checkpointing": {"number_checkpoints": false})"}) {
    EXPECT_EQ("", refusal(section)) << section;
  }
  EXPECT_THAT(refusal(R"("train_batch_size": false)"), HasSubstr("train_batch_size: found false"));
  EXPECT_THAT(refusal(R"("curriculum_learning": {"enabled": true})"),
              HasSubstr("curriculum_learning is not offered: batches follow data.train"));
  EXPECT_THAT(refusal(R"("compression_training": {"weight_quantization": {"shared_parameters":
                         {"enabled": true}}})"),
              HasSubstr("compression_training is not offered"));
  EXPECT_THAT(refusal(R"("sparse_attention": {"mode": "fixed"})"),
              HasSubstr("attention is dense and exact"));
  EXPECT_THAT(
      refusal(R"("scheduler": {"type": "WarmupLR", "params": {"last_batch_iteration": 5}})"),
      HasSubstr("a run goes on from its checkpoint's step"));
}

TEST(Override, NullTakesAKeyOutOfTheFile) {
  const char* const file =
      R"("amp": {"enabled": true}, "nonsense": {"a": {"b": 1}}, "run": {"steps": "x"},
                              "bfloat16": {"enabled": 3}, "optimizer": {"type": "Lamb"})";
  const Configuration values =
      read(file, {"amp=null", "nonsense.a.b=null", "nonsense=null", "run.steps=null",
                  "bf16.enabled=null", "optimizer=null"});
  EXPECT_EQ(100, values.integer("run.steps"));
  EXPECT_EQ("default", values.at("run.steps").source);
  EXPECT_EQ("AdamW", values.text("optimizer.type"));
  EXPECT_EQ("", refusal(R"("scheduler": "x")", {"scheduler=null", "run.seed=null"}));
  EXPECT_THAT(refusal("", {"nonsense=null"}), HasSubstr("unknown key \"nonsense\""));
  EXPECT_THAT(refusal("", {"data.train=null"}), HasSubstr("data.train is missing"));
}

TEST(TrainConfig, ABucketOfNothingIsAWholeUnit) {
  EXPECT_EQ(
      std::numeric_limits<std::int64_t>::max(),
      config_with({"zero_optimization.reduce_bucket_size=0"}).engine.limits.reduce_bucket_elements);
}

TEST(TrainConfig, GradientsTravelAsTheyAreComputed) {
  for (const char* type : {"null", "fp32", "bf16", "bfp16"}) {
    EXPECT_EQ("",
              refusal_with({"bf16.enabled=true", fmt::format("communication_data_type={}", type)}))
        << type;
  }
  EXPECT_EQ(refusal_with({"bfloat16.enabled=true", "communication_data_type=fp16"}),
            "c.json: communication_data_type is \"fp16\", but the run computes in bf16: gradients "
            "travel in that type and sums in fp32; leave it out, or set \"bf16\" or \"fp32\"");
}

TEST(TrainConfig, KeysThatDoNotFitTogetherAreSaidAtOnceAndAsTheyAreWritten) {
  EXPECT_EQ(
      refusal_with({"bfloat16.enabled=true", "fp16.enabled=true", "run.nonfinite_limit=3",
                    "vocabulary_size=7"}),
      "c.json: 3 refusals:\n"
      "  - vocabulary_size is 7, model.vocabulary is 256; make them equal or leave the first "
      "out\n"
      "  - run.nonfinite_limit is given, but run.nonfinite is \"stop\", which ends the run at "
      "the first such step; set run.nonfinite to \"skip\", or leave the limit out\n"
      "  - fp16.enabled and bfloat16.enabled are both true; a run computes in one of them");
}

}  // namespace
}  // namespace zero
