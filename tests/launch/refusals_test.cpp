// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0

// Files written for DeepSpeed, and what a user is told of them: everything at once, in the file's
// own words.
#include "launch/config/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/launch/config_with.h"
#include "tests/launch/read_configuration.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Configuration, MessagesHaveTheKeysNamesOfTheFile) {
  EXPECT_EQ(
      refusal(R"("bfloat16": {"enabled": 3})"),
      "c.json: bfloat16.enabled: found 3, expected true or false; the default is false: --set "
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
      "run.seed=1 run.steps=100");
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

/// What make_train_config() and reading say of a file with `body`.
std::string refusal_of_all(const std::string& body) {
  return error_of([&] {
    Refusals refusals;
    Configuration values = Configuration::from_json(
        parse_json_text(
            R"({"model": "gpt2-124m", "data": {"train": "a"}, "train_batch_size": 8, )" + body +
                "}",
            "c.json"),
        "c.json", {"run.device=cpu", "run.threads=1"}, &refusals);
    make_train_config(std::move(values), 1, 0, std::move(refusals));
  });
}

TEST(Configuration, AnswersToAOneCycleDoNotContradictOneAnother) {
  const auto after = [](const std::string& params, const std::string& sets) {
    return after_answer(R"("optimizer": {"params": {"lr": "auto"}},
                           "scheduler": {"type": "OneCycle", "params": {)" +
                            params + "}}",
                        "scheduler.params=null scheduler.type=linear " + sets);
  };
  const std::string prefix = "scheduler.params.";
  EXPECT_EQ("no error", after(R"("warmup_num_steps": "auto", "cycle_first_step_size": 30,
                         "cycle_max_lr": 0.5, "cycle_min_lr": 0.5)",
                              prefix + "warmup_num_steps=30 " + prefix + "total_num_steps=60 " +
                                  prefix + "min_ratio=1.0 optimizer.params.lr=0.5"));
  // What our keys cannot have is left to the user.
  EXPECT_EQ("no error", after(R"("cycle_first_step_size": 0.3, "cycle_second_step_size": 0.1,
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
  EXPECT_EQ(
      "no error",
      after_answer(R"("zero_optimization.zero_quantized_weights": true,
                                "comms_logger.prof_all": 7, "amp.enabled": true,
                                "optimizer.type": "Lamb", "optimizer.params.max_coeff": 1)",
                   "optimizer.type=AdamW optimizer.params.max_coeff=null amp=null "
                   "comms_logger.prof_all=true zero_optimization.zero_quantized_weights=null"));
  EXPECT_EQ("no error",
            after_answer(R"("scheduler.type": "OneCycle", "scheduler.params.cycle_max_lr": 1)",
                         "scheduler.params=null scheduler.type=linear "
                         "optimizer.params.lr=1.0"));
  EXPECT_EQ("no error", after_answer(R"("optimizer.type": "Lamb", "optimizer": {"type": "Lion"},
                                "fp16": {"loss_scale": -1}, "fp16.loss_scale": 3)",
                                     "optimizer.type=AdamW fp16.loss_scale=0"));
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

TEST(Configuration, WhatOtherFrameworksCallOtherwiseKeepsItsMeaning) {
  EXPECT_EQ(refusal(R"("fsdp": "full_shard auto_wrap")"),
            "c.json: fsdp = \"full_shard auto_wrap\" has no effect under this name: give "
            "zero_optimization.stage=3: --set fsdp=null zero_optimization.stage=3");
  for (const auto& [body, set] :
       {std::pair{R"("fsdp": ["shard_grad_op", "offload"])", "fsdp=null zero_optimization.stage=2"},
        {R"("fsdp": true)", "fsdp=null zero_optimization.stage=3"},
        {R"("fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP"})",
         "fsdp_config=null zero_optimization.stage=2"},
        {R"("fsdp_config": {"fsdp_sharding_strategy": 3})",
         "fsdp_config=null zero_optimization.stage=0"},
        {R"("fsdp_config": {"fsdp_sharding_strategy": "1"})",
         "fsdp_config=null zero_optimization.stage=3"},
        {R"("fsdp_config": {"reshard_after_forward": false})",
         "fsdp_config=null zero_optimization.stage=2"},
        {R"("fsdp_config": {"version": 2})", "fsdp_config=null zero_optimization.stage=3"},
        {R"("mixed_precision": "bf16")", "mixed_precision=null bf16.enabled=true"},
        {R"("bfloat16": true)", "bfloat16=null bfloat16.enabled=true"},
        {R"("fp16": true)", "fp16=null fp16.enabled=true"}}) {
    EXPECT_THAT(refusal(body), ::testing::EndsWith(std::string(": --set ") + set)) << body;
    EXPECT_EQ("no error", after_answer(body, set)) << body;
  }
  EXPECT_THAT(refusal(R"("fsdp": "full_shard", "zero_optimization": {"stage": 1})"),
              ::testing::EndsWith("give zero_optimization.stage, which is given too, alone: --set "
                                  "fsdp=null"));
  // Switched off, it asks for nothing.
  for (const char* body : {R"("fsdp": "")", R"("fsdp": [])", R"("mixed_precision": "no")"}) {
    EXPECT_THAT(refusal(body), HasSubstr("unknown key")) << body;
  }
}

TEST(Configuration, WhatStandsInTheWrongPlaceIsMoved) {
  const std::string offload = "zero_optimization.offload_optimizer";
  for (
      const auto& [body, set] : {
          std::pair<const char*, std::string>{
              R"("zero_optimization": {"aio": {"block_size": 8192, "queue_depth": "4", "odd": 1}})",
              "zero_optimization.aio=null aio.block_size=8192 aio.queue_depth=4"},
          {R"("offload_optimizer": {"device": "nvme", "nvme_path": "/a"})",
           "offload_optimizer=null " + offload + ".device=nvme " + offload + ".nvme_path=/a"},
          {R"("offload_optimizer.device": "nvme")",
           "offload_optimizer.device=null " + offload + ".device=nvme"},
          {R"("fp16": {"bfloat16": {"enabled": true}})", "fp16.bfloat16=null bf16.enabled=true"},
          {R"("zero_optimisation": {"stage": 3, "offload_optimizer": {"ratio": 0.5}})",
           "zero_optimisation=null " + offload + ".ratio=0.5 zero_optimization.stage=3"},
          {R"("optimizer": {"lr": "3e-4"})", "optimizer.lr=null optimizer.params.lr=0.0003"},
          {R"("step_per_print": 10)", "step_per_print=null steps_per_print=10"},
          {R"("zero_optimization": {"offload_optimizer": "cpu"})",
           offload + "=null " + offload + ".device=cpu"},
          {R"("zero_optimization": {"offload_optimizer": true})", offload + "=null"},
          {R"("zero_optimization": "3")", "zero_optimization=null zero_optimization.stage=3"},
          {R"("zero_optimization": true)", "zero_optimization=null zero_optimization.stage=1"},
          {R"("scheduler": "cosine")", "scheduler=null scheduler.type=cosine"},
          {R"("optimizer": "AdamW")", "optimizer=null"},
          // Not what it asks for: a value that does not fit, or is not offered; and what is given.
          {R"("zero_optimization": {"aio": {"block_size": 1, "use_gds": true}})",
           "zero_optimization.aio=null"},
          {R"("zero_optimization": {"aio": {"queue_depth": 4}}, "aio": {"queue_depth": 5})",
           "zero_optimization.aio=null"},
          {R"("step_per_print": 10, "steps_per_print": 9)", "step_per_print=null"},
          {R"("steps": 10)", "steps=null"},  // of a section of ours: another program's may differ
      }) {
    EXPECT_THAT(refusal(body), ::testing::EndsWith(": --set " + set)) << body;
    EXPECT_EQ("no error", after_answer(body, set)) << body;
  }
  EXPECT_THAT(refusal(R"("zero_optimization": {"aio": {"queue_depth": 4}})"),
              HasSubstr("unknown key \"zero_optimization.aio\"; did you mean \"aio\" at the top "
                        "level? Correct it or leave it out"));
  EXPECT_THAT(
      refusal(R"("zero_optimization": {"offload_optimizer": "cpu"})", {offload + ".device=nvme"}),
      HasSubstr("is \"cpu\" in c.json, not a section; give --set " + offload + "=null before it"));
}

// What a moved value is refused for is answered in the same round.
TEST(Configuration, MovedValuesAreThoseOfLaterChecks) {
  EXPECT_EQ("no error",
            after_answer(R"("optimizer": {"type": "SGD", "beta": 1, "betas": [0.5, 0.75]})",
                         "optimizer.beta=null optimizer.betas=null "
                         "optimizer.params.betas=null"));
  EXPECT_THAT(refusal_of_all(R"("offload_optimizer": {"device": "nvme", "nvme_path": ""})"),
              ::testing::EndsWith(": --set offload_optimizer=null "
                                  "zero_optimization.offload_optimizer.device=nvme "
                                  "zero_optimization.offload_optimizer.nvme_path=FOLDER"));
  EXPECT_THAT(refusal_of_all(R"("zero_optimization": {"offload_optimizer": {"device": "nvme",
                                 "nvme_path": ["/a", "/b"]}})"),
              ::testing::EndsWith(": --set "
                                  "zero_optimization.offload_optimizer.nvme_path=FOLDER"));
}

TEST(Configuration, AnswersAreWordsOfAShell) {
  EXPECT_THAT(refusal(R"("it's; rm": 1)"), ::testing::EndsWith(R"(: --set 'it'\''s; rm=null')"));
  EXPECT_EQ("no error",
            refusal(R"("it's; rm": 1, "a.b": {"c.d": 2}, "zero_optimization": {"x.y": 3})",
                    {"it's; rm=null", "a.b=null", "zero_optimization.x.y=null"}));
  // What --set cannot name is left to the user.
  for (const char* body : {R"("a=b": 1)", R"("": 1)", R"("": {"run": {"steps": 3}})",
                           R"("a\tb": 1)", R"("-a": 1)", R"("run": {"a=b": 1})"}) {
    EXPECT_THAT(refusal(body), ::testing::EndsWith("; no option can name it: edit c.json"));
    EXPECT_THAT(refusal(body), Not(HasSubstr("--set")));
  }
  EXPECT_THAT(refusal(R"("optimizer": {"type": "Lamb", "params": {"a=b": 1, "c": 2}})"),
              ::testing::EndsWith("; no option can name optimizer.params.a=b: edit c.json: --set "
                                  "optimizer.type=AdamW optimizer.params.c=null"));
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
  const std::string body = R"("_comment": "of mine", "run": {"//": [1]})";
  EXPECT_EQ("c.json: read as remarks: _comment", read(body, {"run.//=null"}).note());
  EXPECT_EQ("", read(body, {"_comment=null", "run.//=null"}).note());
  EXPECT_THAT(refusal(body, {"_note=null"}), HasSubstr("_note"));
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
    EXPECT_EQ("no error", refusal(section)) << section;
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
  EXPECT_EQ("no error", refusal(R"("scheduler": "x")", {"scheduler=null", "run.seed=null"}));
  EXPECT_THAT(refusal("", {"nonsense=null"}), HasSubstr("unknown key \"nonsense\""));
  EXPECT_THAT(refusal("", {"data.train=null"}), HasSubstr("data.train is missing"));
}

}  // namespace
}  // namespace zero::testing
