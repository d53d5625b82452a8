// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// What does not fit together in a file, and what a user is told of it: everything at once.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "launch/config/refusals.h"
#include "tests/launch/config_with.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// What make_train_config() says of a file without anything of ours, and reading before it.
std::string whole_refusal(const std::string& text, const std::vector<std::string>& sets = {}) {
  return error_of([&] {
    Refusals refusals;
    Configuration values =
        Configuration::from_json(parse_json_text(text, "c.json"), "c.json", sets, &refusals);
    make_train_config(std::move(values), 1, 0, std::move(refusals));
  });
}

TEST(TrainConfig, WhatReadingAndWhatFittingRefuseAreSaidAtOnce) {
  const std::string file = R"({"gradient_clipping": "auto", "train_batch_size": "auto",
                               "fp8": {"enabled": true}, "bf16": {"enabled": true},
                               "fp16": {"enabled": true}})";
  const std::string message = whole_refusal(file);
  EXPECT_THAT(message, HasSubstr("c.json: 6 refusals:"));
  for (const char* part :
       {"- data.train is missing", "- model is missing", "- neither train_batch_size nor",
        "- gradient_clipping is \"auto\"", "- fp8 is not offered", "are both true"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  EXPECT_THAT(message, ::testing::EndsWith(
                           "An answer to all of them, in which to put your own values: --set "
                           "fp8=null data.train=FILE gradient_clipping=1.0 model.hf=FOLDER "
                           "train_micro_batch_size_per_gpu=1 fp16.enabled=false"));
  EXPECT_EQ(
      "c.json: fp16.enabled and bf16.enabled are both true; a run computes in one of them: "
      "--set fp16.enabled=false",
      whole_refusal(file, {"fp8=null", "data.train=a", "gradient_clipping=1.0", "model=gpt2-124m",
                           "train_micro_batch_size_per_gpu=1"}));
}

TEST(TrainConfig, ChecksThatHaveNothingToDoWithEachOtherAreAllMade) {
  const std::string message = refusal_with(
      {"run.sums=fast", "run.device=cpu", "run.nonfinite_limit=3", "run.validation_every=2",
       "run.trace=a", "run.trace_from=999", "run.collective_warning=9", "run.collective_timeout=1",
       "reduction=boundary", "zero_optimization.stage=2", "data_types.grad_accum_dtype=bf16",
       "communication_data_type=bf16", "bf16.bf16_optimizer_states=true"});
  EXPECT_THAT(message, HasSubstr("c.json: 9 refusals:"));
}

TEST(TrainConfig, SizesThatDoNotFitTheWorldAreAnswered) {
  EXPECT_THAT(refusal_with({"train_batch_size=9"}, 2),
              HasSubstr("or the number of ranks: --set train_batch_size=10"));
  const std::vector<std::string> three{"train_batch_size=16", "gradient_accumulation_steps=1"};
  const auto with = [&](const char* micro) {
    std::vector<std::string> sets = three;
    sets.emplace_back(micro);
    return refusal_with(sets, 2);
  };
  EXPECT_THAT(with("train_micro_batch_size_per_gpu=4"),
              HasSubstr("leave one of the three out: --set gradient_accumulation_steps=null"));
  EXPECT_THAT(with("train_micro_batch_size_per_gpu=16"),
              HasSubstr("leave one of the three out: --set train_batch_size=null"));
}

TEST(TrainConfig, WhatDoesNotFitTogetherInAFileIsAnswered) {
  const std::string start =
      R"({"model": "gpt2-124m", "data": {"train": "a"}, "train_batch_size": 8, )";
  const auto expect = [&](const std::string& body, const std::vector<std::string>& answer) {
    const std::string message = whole_refusal(start + body + "}");
    EXPECT_THAT(message, ::testing::EndsWith(fmt::format("--set {}", fmt::join(answer, " "))));
    EXPECT_EQ("no error", whole_refusal(start + body + "}", answer));
  };
  expect(
      R"("bf16": {"enabled": true}, "fp16": {"enabled": true},
            "communication_data_type": "fp16", "data_types": {"grad_accum_dtype": "fp16"})",
      {"fp16.enabled=false", "data_types.grad_accum_dtype=null", "communication_data_type=null"});
  EXPECT_THAT(whole_refusal(start + R"("bf16": {"enabled": true}})", {"fp16.enabled=true"}),
              ::testing::EndsWith("computes in one of them: --set bf16.enabled=false"));
  expect(R"("reduction": "boundary", "zero_optimization": {"stage": 2})",
         {"reduction=every_micro_batch"});
  expect(R"("scheduler": {"type": "cosine", "params": {"warmup_num_steps": 90,
                                                       "total_num_steps": 50}})",
         {"scheduler.params.warmup_num_steps=50"});
  expect(R"("scheduler": {"type": "wsd", "params": {"warmup_num_steps": 200,
                                                    "decay_num_steps": 30}})",
         {"scheduler.params.warmup_num_steps=99", "scheduler.params.decay_num_steps=1"});
  expect(R"("vocabulary_size": 7)", {"vocabulary_size=null"});
  expect(R"("data.sequence_length": 5000)", {"data.sequence_length=1024"});
  expect(R"("run": {"nonfinite_limit": 3, "validation_every": 2, "sums": "fast", "device": "cpu",
                    "trace": "t", "trace_from": 999, "collective_warning": 9,
                    "collective_timeout": 1})",
         {"run.trace_from=100", "run.validation_every=null", "run.sums=null",
          "run.collective_warning=1.0", "run.nonfinite_limit=null"});
  expect(R"("run": {"steps": 0, "trace": "t", "collective_timeout": 9})",
         {"run.trace=null", "run.collective_warning=9.0"});
  expect(R"("run": {"resume": "auto", "stop_after": 5, "resume_changes": ["run.threads"],
                    "checkpoint": {"every_steps": 5, "keep_last": 2}})",
         {"run.stop_after=null", "run.checkpoint.every_steps=null", "run.checkpoint.keep_last=null",
          "run.resume=null", "run.resume_changes=null"});
  expect(R"("run": {"resume_changes": ["run.threads"],
                    "checkpoint": {"folder": "f", "keep_every": 5}})",
         {"run.checkpoint.keep_every=null", "run.resume_changes=null"});
}

TEST(TrainConfig, WhatOneSectionContradictsIsSaidAtOnce) {
  const std::string start =
      R"({"model": "gpt2-124m", "data": {"train": "a"}, "train_batch_size": 8, )";
  const auto expect = [&](const std::string& body, const std::string& answer) {
    const std::string message = whole_refusal(start + body + "}");
    EXPECT_THAT(message, HasSubstr("c.json: 2 refusals:"));
    EXPECT_THAT(message, ::testing::EndsWith("--set " + answer));
    std::istringstream words(answer);
    std::vector<std::string> sets;
    for (std::string set; words >> set;) sets.push_back(set);
    EXPECT_EQ("no error", whole_refusal(start + body + "}", sets));
  };
  const std::string recompute = "activation_checkpointing.";
  expect(R"("activation_checkpointing": {"recompute": "none", "interval": 2, "tensors": ["qkv"]})",
         recompute + "interval=null " + recompute + "tensors=null");
  expect(R"("activation_checkpointing": {"number_checkpoints": 99, "interval": 2})",
         recompute + "interval=null " + recompute + "number_checkpoints=12");
  expect(
      R"("optimizer": {"params": {"adam_w_mode": false}}, "bf16": {"bf16_optimizer_states": true})",
      "bf16.bf16_optimizer_states=null optimizer.type=Adam");
  expect(R"("optimizer": {"type": "SGD", "params": {"moments": "8bit"}},
            "bf16": {"enabled": true, "bf16_optimizer_states": true})",
         "bf16.bf16_optimizer_states=null optimizer.params.moments=null");
  EXPECT_THAT(whole_refusal(start + R"("activation_checkpointing": {"recompute": "auto",
                                                                    "interval": 2}})"),
              ::testing::EndsWith("--set activation_checkpointing.interval=null "
                                  "run.memory_limit=BYTES"));
  EXPECT_THAT(whole_refusal(start + R"("activation_checkpointing": {"tensors": ["x"]}})"),
              ::testing::EndsWith("\"hidden\": --set activation_checkpointing.tensors=null"));
}

// An answer undoes what the file says, never another --set.
TEST(TrainConfig, WhatSetsContradictIsNotAnsweredBySets) {
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {"run.nonfinite_limit=3"},
           {"run.sums=fast", "run.device=cpu"},
           {"run.collective_warning=9", "run.collective_timeout=1"},
           {"run.trace=a", "run.trace_from=999"},
           {"optimizer.type=AdamW", "optimizer.params.adam_w_mode=false"},
           {"run.stop_after=5"},
           {"activation_checkpointing.recompute=none", "activation_checkpointing.interval=2"}}) {
    const std::string message = refusal_with(sets);
    EXPECT_THAT(message, HasSubstr("c.json: ")) << sets[0];
    EXPECT_THAT(message, Not(HasSubstr("--set"))) << sets[0];
  }
}

TEST(TrainConfig, AWarmupLongerThanTheRunIsSaid) {
  const auto warnings = [](const std::vector<std::string>& sets) {
    return config_with(sets).warnings;
  };
  EXPECT_THAT(warnings({"scheduler.type=WarmupLR"}),
              ::testing::ElementsAre(
                  "scheduler.params.warmup_num_steps is 1000 (default of DeepSpeed), run.steps is "
                  "100: the run ends while the learning rate still rises; lower the first or raise "
                  "the second"));
  EXPECT_THAT(warnings({"scheduler.params.warmup_num_steps=101"}), ::testing::SizeIs(1));
  EXPECT_THAT(warnings({"scheduler.params.warmup_num_steps=100"}), ::testing::IsEmpty());
  EXPECT_THAT(warnings({"scheduler.type=WarmupLR", "run.steps=0"}), ::testing::IsEmpty());
}

TEST(TrainConfig, ABucketOfNothingIsAWholeUnit) {
  EXPECT_EQ(
      std::numeric_limits<std::int64_t>::max(),
      config_with({"zero_optimization.reduce_bucket_size=0"}).engine.limits.reduce_bucket_elements);
}

TEST(TrainConfig, GradientsTravelAsTheyAreComputed) {
  for (const char* type : {"null", "fp32", "bf16", "bfp16"}) {
    EXPECT_EQ("no error",
              refusal_with({"bf16.enabled=true", fmt::format("communication_data_type={}", type)}))
        << type;
  }
  EXPECT_EQ(refusal_with({"bfloat16.enabled=true", "communication_data_type=fp16"}),
            "c.json: communication_data_type is \"fp16\", but the run computes in bf16: gradients "
            "travel in that type and sums in fp32; leave it out, or set \"bf16\" or \"fp32\"");
  EXPECT_THAT(refusal_with({"communication_data_type=bf16"}),
              HasSubstr("but the run computes in fp32: gradients travel in that type and sums in "
                        "fp32; leave it out, or set \"fp32\""));
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
}  // namespace zero::testing
