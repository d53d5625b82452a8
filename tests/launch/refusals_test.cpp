// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Files written for DeepSpeed, and what a user is told of them: everything at once, in the file's
// own words.
#include "launch/config/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

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
  EXPECT_EQ(
      refusal(R"("bfloat16": {"enabled": 1})"),
      "c.json: bfloat16.enabled: found 1, expected true or false; the default is false: --set "
      "bfloat16.enabled=false");
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
      "type; set amp.enabled to false or leave it out\n"
      "  - --set: run.log: found \"\", expected a text or null; the default is \"run.log\"\n"
      "  - unknown key \"run.sede\"; did you mean \"run.seed\"? Correct it or leave it out\n"
      "  - run.steps: found \"ten\", expected a whole number from 0; the default is 100\n"
      "  An answer to 3 of them, in which to put your own values: --set amp=null run.sede=null "
      "run.steps=100");
}

TEST(Configuration, SeveralAutosAreOneLineToCopy) {
  EXPECT_EQ(refusal(R"("fp16": {"enabled": "auto"}, "gradient_clipping": "auto",
                       "optimizer": {"params": {"betas": "auto"}},
                       "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto",
                                                                    "warmup_num_steps": "auto"}},
                       "zero_optimization": {"reduce_bucket_size": "auto"})"),
            "c.json: 4 values are \"auto\", which only a surrounding framework can fill in; give "
            "your own, for example the defaults, for fp16.enabled, gradient_clipping, "
            "optimizer.params.betas, scheduler.params.warmup_num_steps: --set fp16.enabled=false "
            "gradient_clipping=1.0 'optimizer.params.betas=[0.9,0.999]' "
            "scheduler.params.warmup_num_steps=10");
}

TEST(Configuration, AutosThatBelongToAnotherTypeAreLeftOut) {
  EXPECT_EQ(
      refusal(R"("optimizer": {"type": "SGD", "params": {"betas": "auto"}})"),
      "c.json: optimizer.params.betas does not belong to optimizer.type \"SGD\" but to AdamW, "
      "Adam: --set optimizer.params.betas=null");
}

/// What make_train_config() says of a file without anything of ours, and reading before it.
std::string whole_refusal(const std::string& text, const std::vector<std::string>& sets = {}) {
  return testing::error_of([&] {
    Refusals refusals;
    Configuration values =
        Configuration::from_json(parse_json_text(text, "c.json"), "c.json", sets, refusals);
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
    EXPECT_EQ("", whole_refusal(start + body + "}", answer));
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

TEST(Configuration, ATypeThatThereIsNotIsRefusedOnceWithWhatGoesWithIt) {
  EXPECT_EQ(refusal(R"("scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.25,
                         "cycle_max_lr": 1, "cycle_first_step_size": 30, "decay_lr_rate": 0}})"),
            "c.json: scheduler.type \"OneCycle\" is not offered: it also changes momentum. "
            "\"linear\" goes up and down as it does; expected one of \"constant\", \"linear\", "
            "\"cosine\", \"wsd\", \"WarmupLR\", \"WarmupDecayLR\", \"WarmupCosineLR\". To "
            "\"OneCycle\" belong scheduler.params.cycle_first_step_size, "
            "scheduler.params.cycle_max_lr, scheduler.params.cycle_min_lr, "
            "scheduler.params.decay_lr_rate: --set scheduler.params=null scheduler.type=linear "
            "scheduler.params.warmup_num_steps=30 scheduler.params.total_num_steps=60 "
            "scheduler.params.min_ratio=0.25 optimizer.params.lr=1.0");
  EXPECT_EQ(refusal(R"("optimizer": {"type": "Lamb", "params": {"lr": 1, "max_coeff": 0.3}})"),
            "c.json: optimizer.type: found \"Lamb\", expected one of \"AdamW\", \"Adam\", \"SGD\"; "
            "the default is \"AdamW\". To \"Lamb\" belong optimizer.params.max_coeff: --set "
            "optimizer.type=AdamW optimizer.params.max_coeff=null");
  EXPECT_EQ(refusal("", {"scheduler.type=LRRangeTest"}),
            "--set: scheduler.type: found \"LRRangeTest\", expected one of \"constant\", "
            "\"linear\", \"cosine\", \"wsd\", \"WarmupLR\", \"WarmupDecayLR\", "
            "\"WarmupCosineLR\"; the default is \"constant\"");
}

/// The first start's answer to a file with `body`, and what the second says.
std::string after_answer(const std::string& body, const std::string& expected) {
  const std::string message = refusal(body);
  const std::size_t at = message.rfind("--set ");
  EXPECT_NE(std::string::npos, at) << message;
  if (at == std::string::npos) return message;
  EXPECT_EQ(expected, message.substr(at + 6)) << message;
  std::vector<std::string> sets;
  std::istringstream words(message.substr(at + 6));
  for (std::string word; words >> word;) sets.push_back(word);
  return refusal(body, sets);
}

TEST(Configuration, AnswersToAOneCycleDoNotContradictOneAnother) {
  const auto after = [](const std::string& params, const std::string& sets) {
    return after_answer(R"("optimizer": {"params": {"lr": "auto"}},
                           "scheduler": {"type": "OneCycle", "params": {)" +
                            params + "}}",
                        "scheduler.params=null scheduler.type=linear " + sets);
  };
  const std::string prefix = "scheduler.params.";
  EXPECT_EQ("", after(R"("warmup_num_steps": "auto", "cycle_first_step_size": 30,
                         "cycle_max_lr": 0.5, "cycle_min_lr": 0.5)",
                      prefix + "warmup_num_steps=30 " + prefix + "total_num_steps=60 " + prefix +
                          "min_ratio=1.0 optimizer.params.lr=0.5"));
  // What our keys cannot have is left to the user.
  EXPECT_EQ("", after(R"("cycle_first_step_size": 0.3, "cycle_second_step_size": 0.1,
                         "cycle_max_lr": 1e14)",
                      "optimizer.params.lr=0.001"));
  EXPECT_THAT(refusal(R"("scheduler": {"type": "OneCycle", "params": {"cycle_max_lr": 1}})",
                      {"optimizer.params.lr=0.25"}),
              ::testing::EndsWith("--set scheduler.params=null scheduler.type=linear"));
  EXPECT_THAT(refusal(R"("scheduler.type": "OneCycle", "optimizer": 3,
                         "scheduler.params.cycle_max_lr": 1)"),
              Not(HasSubstr("optimizer.params.lr=")));
}

TEST(Configuration, KeysWithDotsAreAnswered) {
  EXPECT_EQ("", after_answer(R"("zero_optimization.offload_param.device": "cpu",
                                "comms_logger.prof_all": 1, "amp.enabled": true,
                                "optimizer.type": "Lamb", "optimizer.params.max_coeff": 1)",
                             "optimizer.type=AdamW optimizer.params.max_coeff=null amp=null "
                             "comms_logger.prof_all=true zero_optimization.offload_param=null"));
  EXPECT_EQ("", after_answer(R"("scheduler.type": "OneCycle", "scheduler.params.cycle_max_lr": 1)",
                             "scheduler.params=null scheduler.type=linear "
                             "optimizer.params.lr=1.0"));
  EXPECT_EQ("", after_answer(R"("optimizer.type": "Lamb", "optimizer": {"type": "Lion"},
                                "fp16": {"loss_scale": -1}, "fp16.loss_scale": 3)",
                             "fp16.loss_scale=-1 optimizer.type=Lion optimizer.type=AdamW "
                             "fp16.loss_scale=0"));
}

TEST(Configuration, AKeyOfSeveralLinesForgesNoAnswer) {
  const std::string forged = R"(x\n  An answer to all of them: --set run.nonfinite=ignore)";
  for (const std::string& body :
       {"\"" + forged + "\": 1", "\"bfloat16\": {\"" + forged + "\": 1}",
        R"("optimizer": {"type": "Lamb", "params": {")" + forged + "\": 1}}",
        "\"wandb\": {\"" + forged + "\": 1}, \"wandb." + forged + "\": 2",
        "\"run.log\": \"" + forged + R"(", "run": {"log": "a"}, "seed": 1)"}) {
    const std::string one = refusal(body);
    EXPECT_THAT(one, ::testing::AnyOf(Not(HasSubstr("\n")), HasSubstr("2 refusals:"))) << body;
    EXPECT_THAT(one, Not(HasSubstr("\n  An answer to all of them: "))) << body;
    const std::string two = refusal(body + R"(, "fp8": {"enabled": true})");
    EXPECT_THAT(two, Not(HasSubstr("\n  An answer to all of them: "))) << body;
    EXPECT_THAT(two, HasSubstr("fp8=null")) << body;
  }
  EXPECT_THAT(refusal("\"" + forged + "\": 1"), HasSubstr("unknown key \"x?  An answer to all"));
  EXPECT_EQ("c.json: read as remarks: _x?y", read(R"("_x\ny": 1)").note());
}

TEST(Configuration, KeysThatHaveAnotherNameHereAreMoved) {
  EXPECT_EQ(refusal(R"("optimizer": {"params": {"max_grad_norm": 0.3}})"),
            "c.json: optimizer.params.max_grad_norm = 0.3 has no effect under this name: give "
            "gradient_clipping: --set optimizer.params.max_grad_norm=null gradient_clipping=0.3");
  EXPECT_EQ(
      refusal(R"("max_grad_norm": "x", "learning_rate": 3, "optimizer": {"params": {"lr": 1}})"),
      "c.json: 2 refusals:\n"
      "  - learning_rate = 3 has no effect under this name: give optimizer.params.lr, which "
      "is given too, alone\n"
      "  - max_grad_norm = \"x\" has no effect under this name: give gradient_clipping\n"
      "  An answer to all of them, in which to put your own values: --set "
      "learning_rate=null max_grad_norm=null");
}

TEST(Configuration, AnswersAreWordsOfAShell) {
  EXPECT_THAT(refusal(R"("it's; rm": 1)"), ::testing::EndsWith(R"(: --set 'it'\''s; rm=null')"));
  EXPECT_EQ("", refusal(R"("it's; rm": 1, "a.b": {"c.d": 2}, "zero_optimization": {"x.y": 3})",
                        {"it's; rm=null", "a.b=null", "zero_optimization.x.y=null"}));
  // What --set cannot name is left to the user.
  EXPECT_THAT(refusal(R"("a=b": 1)"), Not(HasSubstr("--set")));
  EXPECT_THAT(refusal(R"("": 1)"), Not(HasSubstr("--set")));
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
        R"("sparse_attention": {"enabled": false, "mode": "fixed"})",
        R"("fp8": {"enabled": false})",
        R"("sequence_parallel": {"enabled": false, "tiling": {"enabled": true}})",
        R"("zero_optimization": {"zenflow": {"enabled": false}, "zeropp_loco_param": false})",
        R"("bf16": {"enabled": true, "loss_scale": 0, "hysteresis": 2})",
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
  EXPECT_THAT(refusal(R"("sparse_attention": {})"), HasSubstr("--set sparse_attention=null"));
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
