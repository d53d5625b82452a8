// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/config/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "tests/errors.h"
#include "tests/launch/read_configuration.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(OptionTable, PathsAreUniqueAndDefaultsAreJson) {
  std::set<std::string> seen;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(seen.insert(option.path).second) << option.path;
    EXPECT_FALSE(option.help.empty()) << option.path;
    EXPECT_TRUE(option.fallback.empty() || nlohmann::json::accept(option.fallback)) << option.path;
  }
}

TEST(OptionTable, EveryDefaultIsAcceptedWhenWritten) {
  for (const Option& option : option_table()) {
    if (option.fallback.empty() || !option.types.empty()) continue;
    EXPECT_EQ(refusal("", {option.path + "=" + option.fallback}), "no error") << option.path;
  }
}

TEST(OptionTable, HelpNamesEveryKey) {
  const std::string help = option_help();
  for (const Option& option : option_table())
    EXPECT_THAT(help, HasSubstr("  " + option.path + " "));
}

TEST(OptionTable, KeysOfTheModelNameTheirFamiliesAndDefaults) {
  EXPECT_EQ(find_option("model.width")->help, "channels; null: 768 for gpt2");
  EXPECT_THAT(
      find_option("model.norm_epsilon")->help,
      AllOf(StartsWith("llama, gemma3: "), EndsWith("; null: 1e-05 for llama, 1e-06 for gemma3")));
  EXPECT_THAT(find_option("model.local_rope_theta")->help,
              AllOf(StartsWith("gemma3: "), EndsWith("; null: 10000 for gemma3")));
  EXPECT_THAT(find_option("model.hf")->help, HasSubstr("MinistralForCausalLM"));
}

TEST(Configuration, DefaultsFillWhatIsNotGiven) {
  const Configuration values = read("");
  EXPECT_EQ(values.integer("zero_optimization.stage"), 0);
  EXPECT_EQ(values.number("gradient_clipping"), 1.0);
  EXPECT_EQ(values.at("gradient_clipping").source, "default");
  EXPECT_EQ(values.at("data.train").source, "c.json");
  EXPECT_TRUE(values.given("data.train"));
  EXPECT_FALSE(values.given("run.steps"));
}

TEST(Configuration, UnknownKeysAreRefusedAtEveryLevelWithASuggestion) {
  EXPECT_EQ(
      refusal(R"("zero_optimisation": {"stage": 1})"),
      "c.json: unknown key \"zero_optimisation\"; did you mean \"zero_optimization\"? Correct "
      "it or leave it out: --set zero_optimisation=null zero_optimization.stage=1");
  EXPECT_THAT(refusal(R"("zero_optimization": {"stgae": 1})"),
              HasSubstr("c.json: unknown key \"zero_optimization.stgae\"; did you mean "
                        "\"zero_optimization.stage\"? Correct it or"));
  EXPECT_EQ(refusal(R"("optimizer": {"params": {"learning_rat": 1, "weight_dcay": 0}})"),
            "c.json: 2 refusals:\n"
            "  - unknown key \"optimizer.params.learning_rat\"; optimizer.params has the keys lr, "
            "betas, eps, weight_decay, adam_w_mode, momentum, moments, torch_adam, "
            "bias_correction, amsgrad, nesterov, dampening; correct it or leave it out\n"
            "  - unknown key \"optimizer.params.weight_dcay\"; did you mean "
            "\"optimizer.params.weight_decay\"? Correct it or leave it out\n"
            "  An answer to all of them, in which to put your own values: --set "
            "optimizer.params.learning_rat=null optimizer.params.weight_dcay=null "
            "optimizer.params.weight_decay=0.0");
  EXPECT_THAT(refusal(R"("stage": 1)"),
              HasSubstr("unknown key \"stage\"; did you mean \"zero_optimization.stage\"?"));
  // A name of another section is told only where it is nearly that.
  EXPECT_THAT(refusal(R"("fp16": {"opt_level": "O3"})"), HasSubstr("fp16 has the keys enabled"));
  EXPECT_THAT(refusal(R"("run": {"qqqqqqqqqq": 1})"),
              HasSubstr("zero_train --help lists the 39 keys of run"));
  EXPECT_THAT(
      refusal(R"("qqqqqqqqqqqqqqqq": 1)"),
      HasSubstr("keys of the top level; correct it or leave it out: --set qqqqqqqqqqqqqqqq"));
}

TEST(Configuration, WrongTypesAreRefused) {
  EXPECT_EQ(refusal(R"("run": {"steps": "ten"})"),
            "c.json: run.steps: found \"ten\", expected a whole number from 0; "
            "the default is 100: --set run.steps=100");
  EXPECT_THAT(refusal(R"("data_types": {"grad_accum_dtype": "fp8"})"),
              HasSubstr("expected one of \"fp32\", \"bf16\", \"fp16\" or null"));
  EXPECT_THAT(refusal(R"("bf16": {"enabled": 2})"),
              HasSubstr("bf16.enabled: found 2, expected true or false"));
  EXPECT_THAT(refusal(R"("bf16": true)"),
              HasSubstr("bf16: found true, expected an object with keys enabled"));
  EXPECT_THAT(refusal(R"("zero_optimization": true)"), HasSubstr("{\"stage\": 1}"));
  EXPECT_THAT(refusal(R"("zero_optimization": {"stage": 4})"),
              HasSubstr("found 4, expected a whole number from 0 to 3"));
  EXPECT_THAT(refusal(R"("optimizer": {"params": {"betas": [0.9]}})"),
              HasSubstr("expected two numbers from 0 to below 1"));
  EXPECT_THAT(refusal(R"("optimizer": {"params": {"lr": "3e-4x"}})"),
              HasSubstr("found \"3e-4x\", expected a number"));
  EXPECT_THAT(refusal(R"("run": {"log": ""})"), HasSubstr("run.log: found \"\", expected a text"));
  EXPECT_THAT(refusal(R"("run": {"steps": null})"), HasSubstr("run.steps: found null"));
  EXPECT_THAT(error_of([] { Configuration::from_json(nlohmann::json::array(), "c.json", {}); }),
              HasSubstr("c.json: found [] at the top"));
  EXPECT_THAT(
      error_of([] {
        Configuration::from_json(nlohmann::json{{"data", {{"train", {"a", 1}}}}}, "c.json", {});
      }),
      HasSubstr("data.train: found [\"a\",1], expected a text or a list of texts"));
}

TEST(Configuration, MissingTrainingDataIsNamed) {
  EXPECT_THAT(
      error_of([] { Configuration::from_json(nlohmann::json::object(), "c.json", {}); }),
      HasSubstr("c.json: data.train is missing: token shards, which zero_prepare makes of texts"));
}

TEST(Configuration, AutoIsResolvedOrRefusedByName) {
  const Configuration values = read(
      R"("train_batch_size": "auto", "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"})");
  EXPECT_TRUE(values.is_null("train_batch_size"));
  EXPECT_EQ(values.integer("zero_optimization.reduce_bucket_size"), 0);
  EXPECT_EQ(values.at("zero_optimization.reduce_bucket_size").source, "c.json (auto)");
  EXPECT_THAT(refusal(R"("optimizer": {"params": {"lr": "auto"}})"),
              AllOf(HasSubstr("optimizer.params.lr is \"auto\""),
                    HasSubstr("for example: --set optimizer.params.lr=0.001")));
  EXPECT_TRUE(read(R"("run": {"threads": "auto"})").is_null("run.threads"));
  EXPECT_THAT(refusal(R"("run": {"threads": 0})"), HasSubstr("from 1 to 4096 or \"auto\""));
  EXPECT_THAT(refusal(R"("gradient_clipping": "auto")"),
              HasSubstr("gradient_clipping is \"auto\""));
  EXPECT_THAT(refusal(R"("fp16": "auto")"), HasSubstr("fp16 is \"auto\""));
}

TEST(Configuration, KeysThatWouldChangeResultsAreRefusedWithTheReason) {
  EXPECT_THAT(refusal(R"("fp16": {"fp16_master_weights_and_grads": true})"),
              AllOf(HasSubstr("fp16.fp16_master_weights_and_grads = true is not offered"),
                    HasSubstr("master values are fp32")));
  EXPECT_THAT(refusal(R"("aio": {"use_gds": true})"),
              AllOf(HasSubstr("aio.use_gds = true is not offered: files are read into host memory"),
                    HasSubstr("or leave it out: --set aio.use_gds=null")));
  EXPECT_EQ(
      refusal(
          R"("zero_optimization": {"offload_optimizer": null, "offload_param": {"device": "none"}})"),
      "no error");
  EXPECT_THAT(refusal(R"("zero_optimization": {"zero_quantized_gradients": true})"),
              HasSubstr("not quantized"));
  EXPECT_THAT(refusal(R"("amp": {"enabled": true, "opt_level": "O1"})"),
              HasSubstr("amp is not offered"));
  EXPECT_THAT(refusal(R"("run": {"sample": 300})"),
              AllOf(HasSubstr("run.sample = 300 is not offered"),
                    HasSubstr("zero_generate --model FOLDER --prompt TEXT, with the folder of "
                              "run.checkpoint.folder or run.save_weights"),
                    HasSubstr("--set run.sample=null")));
  EXPECT_EQ(refusal(R"("amp": {"enabled": false, "opt_level": "O1"})"), "no error");
  EXPECT_THAT(refusal(R"("gradient_allreduce_op": "sum")"),
              HasSubstr("mean over the step's tokens"));
  EXPECT_THAT(refusal(R"("optimizer": {"type": "Lamb"})"),
              HasSubstr("optimizer.type: found \"Lamb\", expected one of"));
  EXPECT_THAT(refusal(R"("scheduler": {"type": "OneCycle"})"),
              HasSubstr("OneCycle\" is not offered"));
}

TEST(Configuration, KeysWithoutEffectAreAcceptedAndSaid) {
  const Configuration values = read(
      R"("wall_clock_breakdown": true, "zero_optimization": {"contiguous_gradients": true}, "tensorboard": {"enabled": true})");
  EXPECT_EQ(values.note(),
            "c.json: accepted, and cannot change results here (--print-config says why): "
            "zero_optimization.contiguous_gradients, wall_clock_breakdown, tensorboard");
  EXPECT_EQ(read("").note(), "");
  EXPECT_THAT(values.dump(),
              HasSubstr("changes nothing here: a unit's gradients are always contiguous"));
}

TEST(Configuration, ParametersOfAnotherTypeAreRefused) {
  EXPECT_THAT(
      refusal(R"("optimizer": {"type": "SGD", "params": {"betas": [0.9, 0.95]}})"),
      HasSubstr(
          "optimizer.params.betas does not belong to optimizer.type \"SGD\" but to AdamW, Adam"));
  EXPECT_THAT(
      refusal(R"("scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}})"),
      HasSubstr("scheduler.params.cos_min_ratio does not belong to scheduler.type \"WarmupLR\""));
}

TEST(Configuration, TypeNamesIgnoreCapitals) {
  EXPECT_EQ(read(R"("optimizer": {"type": "adamw"})").text("optimizer.type"), "AdamW");
}

TEST(Configuration, OlderNamesAreUnderstood) {
  EXPECT_TRUE(read(R"("bfloat16": {"enabled": true})").boolean("bf16.enabled"));
  EXPECT_EQ(refusal(R"("bfloat16": {"enabled": true}, "bf16": {"enabled": false})"),
            "c.json: bf16.enabled is given twice, also as bfloat16.enabled, as false and as true; "
            "keep one of them: --set bf16.enabled=false");
  for (const char* name : {"stage3_max_live_parameters", "max_live_parameters"}) {
    EXPECT_EQ(77, read(fmt::format(R"("zero_optimization": {{"{}": 77}})", name))
                      .integer("zero_optimization.stage3_max_live_parameters"))
        << name;
  }
  EXPECT_THAT(refusal(R"("zero_optimization": {"prefetch_bucket_size": 1,
                         "stage3_prefetch_bucket_size": 2})"),
              HasSubstr("zero_optimization.stage3_prefetch_bucket_size is given twice, also as "
                        "zero_optimization.prefetch_bucket_size, as 1 and as 2"));
}

TEST(Configuration, KeysWithDotsAreThoseOfTheirSections) {
  const Configuration values = read(
      R"("zero_optimization.stage": 3, "bfloat16.enabled": true, "optimizer.params": {"lr": 0.5},
         "optimizer": {"params.eps": 0.25, "_note.a": 1}, "run.//": "x", "model": "gpt2-124m",
         "model.layers": 2, "tensorboard.a.b": 1, "tensorboard": {"a": {"c": 2}})",
      {"zero_optimization.stage=2", "bf16.enabled=false"});
  EXPECT_EQ(2, values.integer("zero_optimization.stage"));
  EXPECT_EQ("--set", values.at("zero_optimization.stage").source);
  EXPECT_FALSE(values.boolean("bf16.enabled"));
  EXPECT_EQ(0.5, values.number("optimizer.params.lr"));
  EXPECT_EQ(0.25, values.number("optimizer.params.eps"));
  EXPECT_EQ("gpt2-124m", values.text("model.name"));
  EXPECT_EQ(2, values.integer("model.layers"));
  EXPECT_EQ(R"({"a":{"b":1,"c":2}})", values.at("tensorboard").value.dump());
  EXPECT_THAT(values.note(), HasSubstr("remarks: optimizer._note.a, run.//"));
  EXPECT_THAT(refusal(R"("bfloat16.enabled": 3)"), HasSubstr("c.json: bfloat16.enabled: found 3"));
  EXPECT_THAT(refusal(R"("fp16.": 1, ".fp16": 2)"),
              AllOf(HasSubstr("unknown key \"fp16.\""), HasSubstr("unknown key \".fp16\"")));
  EXPECT_THAT(refusal("\"amp" + std::string(100'000, '.') + "x\": 1"), HasSubstr("unknown key"));
}

TEST(Configuration, AKeyGivenTwiceWithOtherValuesIsRefused) {
  const char* const file = R"("fp16": {"enabled": false}, "fp16.enabled": true)";
  EXPECT_EQ(refusal(file),
            "c.json: fp16.enabled is given twice, as false and as true; keep one of them: --set "
            "fp16.enabled=false");
  EXPECT_TRUE(read(file, {"fp16.enabled=true"}).boolean("fp16.enabled"));
  EXPECT_EQ("no error", refusal(file, {"fp16=null"}));
  EXPECT_EQ("no error", refusal(R"("fp16": {"enabled": true}, "fp16.enabled": true, "run": null,
                           "run.seed": 2, "bf16": null, "bfloat16.enabled": false)"));
  EXPECT_THAT(refusal(R"("wandb": 3, "wandb.a": 4)"),
              HasSubstr("wandb is given twice, also as wandb.a, as 3 and as {\"a\":4}"));
  EXPECT_THAT(refusal(R"("wandb": {"a": 3}, "wandb.a": 4)"), HasSubstr("--set wandb.a=3"));
  EXPECT_EQ(refusal(R"("run": 3, "run.seed": 4)", {"run=null"}), "no error");
  EXPECT_THAT(refusal(R"("bf16.enabled": true, "bfloat16": 3)"), HasSubstr("bfloat16: found 3"));
}

TEST(Override, ReplacesAndAddsValues) {
  const Configuration values = read(
      R"("model": "gpt2-124m", "run": {"steps": 5})",
      {"run.steps=7", "run.log=/tmp/x.log", "model.layers=2", "optimizer.params.betas=[0.5, 0.6]",
       "data.validation=12", "bfloat16.enabled=true", "run.init=null"});
  EXPECT_EQ(values.integer("run.steps"), 7);
  EXPECT_EQ(values.at("run.steps").source, "--set");
  EXPECT_EQ(values.text("run.log"), "/tmp/x.log");
  EXPECT_EQ(values.text("model.name"), "gpt2-124m");
  EXPECT_EQ(values.at("model.name").source, "c.json");
  EXPECT_EQ(values.integer("model.layers"), 2);
  EXPECT_EQ(values.texts("data.validation"), std::vector<std::string>{"12"});
  EXPECT_TRUE(values.boolean("bf16.enabled"));
  EXPECT_EQ(read(R"("model": {"layers": 3})", {"model=gpt2-350m"}).text("model.name"), "gpt2-350m");
}

TEST(Override, NumbersThatAreNotFiniteAreRefusedForEveryKey) {
  int keys = 0;
  for (const Option& option : option_table()) {
    if (option.type != ValueType::number && option.type != ValueType::integer) continue;
    ++keys;
    for (const char* value : {"inf", "-inf", "nan", "NaN", "Infinity", "1e999", "-1e999"}) {
      EXPECT_THAT(refusal("", {option.path + "=" + value}),
                  AllOf(HasSubstr(option.path + ": found "), HasSubstr("expected ")))
          << value;
    }
    if (option.low < 0) continue;
    EXPECT_THAT(refusal("", {option.path + "=-2"}),
                AllOf(HasSubstr(option.path + ": found -2"), HasSubstr("expected ")));
  }
  EXPECT_GT(keys, 50);
  for (const char* betas : {"[0.9, inf]", "[nan, 0.9]", "[0.9, 1e999]", "[-0.1, 0.9]", "[0.9, 1]"})
    EXPECT_THAT(refusal("", {std::string("optimizer.params.betas=") + betas}),
                HasSubstr("optimizer.params.betas: found "));
}

TEST(Override, AMemberOfAnotherProgramsSectionIsSet) {
  const Configuration values = read("", {"tensorboard.enabled=true", "wandb.a.b=1"});
  EXPECT_THAT(values.note(), HasSubstr("tensorboard, wandb"));
  EXPECT_EQ(values.at("tensorboard").value.dump(), R"({"enabled":true})");
  EXPECT_EQ(values.at("tensorboard").source, "--set");
  EXPECT_EQ(read(R"("tensorboard": {"job_name": "x"})").at("tensorboard").source, "c.json");
  EXPECT_THAT(refusal("", {"zero_optimization.zenflow.topk_ratio=0.1"}),
              HasSubstr("--set: zero_optimization.zenflow is not offered: updates are never"));
  EXPECT_THAT(refusal(R"("tensorboard": 3)", {"tensorboard.enabled=true"}),
              HasSubstr("tensorboard is 3 in c.json, not a section"));
}

TEST(Override, MistakesAreNamed) {
  EXPECT_THAT(refusal("", {"run.steps"}), HasSubstr("--set run.steps: expected key.path=value"));
  EXPECT_EQ(refusal("", {"run.step=3"}),
            "--set: unknown key \"run.step\"; did you mean \"run.steps\"?");
  EXPECT_THAT(refusal("", {"rnu.steps=3"}),
              AllOf(HasSubstr("--set: unknown key \"rnu.steps\""), HasSubstr("run.steps")));
  EXPECT_THAT(refusal("", {"run.steps=many"}), HasSubstr("--set: run.steps: found \"many\""));
  EXPECT_THAT(refusal(R"("run": 3)", {"run.steps=1"}),
              HasSubstr("run is 3 in c.json, not a section"));
}

TEST(Configuration, DumpSaysWhereEachValueCameFrom) {
  const std::string text = read(R"("run": {"steps": 5})", {"run.seed=9"}).dump();
  EXPECT_THAT(text, ::testing::ContainsRegex("run.steps +=  *5 +# c.json"));
  EXPECT_THAT(text, ::testing::ContainsRegex("run.seed +=  *9 +# --set"));
  EXPECT_THAT(text, ::testing::ContainsRegex("gradient_clipping +=  *1.0 +# default"));
  EXPECT_THAT(text, Not(HasSubstr("fp16.auto_cast")));
}

TEST(Configuration, AModelsConfigurationNamesTheKeyOfItsFolder) {
  const Scratch folder;
  const std::string path =
      folder.write("config.json", R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 64})");
  EXPECT_EQ(error_of([&] { Configuration::read(path, {}); }),
            path +
                ": is a model's config.json, not the configuration of a run; give --config a file "
                "of the run's keys, and the model's folder as model.hf: --set model.hf=" +
                folder.path());
}

}  // namespace
}  // namespace zero::testing
