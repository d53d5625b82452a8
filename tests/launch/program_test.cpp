// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/launch/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

TEST(Program, OneTwoAndThreeRanksTrain) {
  const TinyRun run;
  const Outcome one = alone(run, "--set train_batch_size=8");
  EXPECT_EQ(one.status, 0) << one.errors;
  EXPECT_THAT(one.out, AllOf(HasSubstr("step 3/3"), HasSubstr("as planned, to the byte"),
                             Not(HasSubstr("exposed communication"))));
  const auto alone_log = run.log();
  ASSERT_EQ(alone_log.size(), 4U);
  const Outcome two = job(run, 2, "--set train_batch_size=8");
  EXPECT_EQ(two.status, 0) << two.errors;
  EXPECT_THAT(two.out, ContainsRegex("left  exposed communication.* [0-9.]+ %"));
  const auto log = run.log();
  ASSERT_EQ(log.size(), 4U);
  EXPECT_EQ(log[2]["loss"], alone_log[2]["loss"]);
  EXPECT_EQ(log[3]["state_hash"], alone_log[3]["state_hash"]);
  EXPECT_EQ(log[3]["validation_loss"], alone_log[3]["validation_loss"]);
  EXPECT_EQ(log[3]["plan_exact"], true);
  const Outcome three = job(run, 3, "");
  EXPECT_EQ(three.status, 0) << three.errors;
  EXPECT_EQ(run.log().back()["plan_exact"], true);
  const auto hash = run.log().back()["state_hash"];
  const Outcome threads = job(run, 3, "--set run.threads=2");
  EXPECT_EQ(threads.status, 0) << threads.errors;
  EXPECT_EQ(run.log().back()["state_hash"], hash);
}

TEST(Program, InformsWithoutTraining) {
  const TinyRun run;
  EXPECT_THAT(shell(run, kTrain + " --version").out,
              AllOf(HasSubstr("MPI: "), HasSubstr("vector instructions")));
  EXPECT_THAT(shell(run, "env ZERO_MAX_CPU_ISA=AVX2 " + kTrain + " --version").out,
              HasSubstr("vector instructions: AVX2 (ZERO_MAX_CPU_ISA=AVX2)"));
  EXPECT_THAT(shell(run, kTrain + " --help").out,
              AllOf(HasSubstr("--print-config"), HasSubstr("ZERO_JOB_SECRET_FILE"),
                    HasSubstr("ZERO_MAX_CPU_ISA"),
                    HasSubstr("zero_optimization.stage3_max_live_parameters")));
  const Outcome unknown = shell(run, "env ZERO_MAX_CPU_ISA=SSE9 " + kTrain + " --version");
  EXPECT_EQ(unknown.status, exit_status::kConfiguration);
  EXPECT_THAT(unknown.errors, HasSubstr("ZERO_MAX_CPU_ISA is \"SSE9\"; expected AVX2"));
  const Outcome values = alone(run, "--print-config --world 6 --set run.steps=9");
  EXPECT_EQ(values.status, 0);
  EXPECT_THAT(values.out,
              AllOf(ContainsRegex("run.steps += 9 +# --set"),
                    ContainsRegex("gradient_accumulation_steps += 1 +# inferred for world 6")));
  const Outcome plan = alone(run, "--plan --world 6 --json");
  EXPECT_EQ(plan.status, 0);
  EXPECT_EQ(nlohmann::json::parse(plan.out)["world"], 6);
  EXPECT_FALSE(std::filesystem::exists(run.folder().path("run.log")));
}

TEST(Program, HelpThatAFullDiskDoesNotTakeIsAnError) {
  const TinyRun run;
  for (const std::string flag : {" --help", " --version"}) {
    const Outcome lost = shell(run, "sh -c '" + kTrain + flag + " >/dev/full'");
    EXPECT_EQ(lost.status, 1) << flag;
    EXPECT_THAT(lost.complaints(), ::testing::ElementsAre(HasSubstr(
                                       "standard output: cannot write: No space left on device")));
  }
}

// launch/retry.sh asks so, outside of the job and of its world.
TEST(Program, TellsAValueThatNoWorldChanges) {
  const TinyRun run;
  const std::string value = " --print-value run.checkpoint.folder";
  const std::string job_needs_four = "--set mesh.tensor=4 'run.checkpoint.folder=a \"b\" \\c'";
  EXPECT_EQ(alone(run, job_needs_four + " --print-config").status, exit_status::kConfiguration);
  const Outcome told = alone(run, job_needs_four + value);
  EXPECT_EQ(told.status, 0) << told.errors;
  EXPECT_EQ(told.out, "a \"b\" \\c\n");
  EXPECT_EQ(alone(run, value).out, "");
  EXPECT_EQ(alone(run, "--print-value run.steps").out, "3\n");
  EXPECT_EQ(job(run, 2, "--print-value run.steps").out, "3\n3\n");
  const Outcome lost = shell(run, "sh -c '" + kTrain + " --config " + run.config() +
                                      " --print-value run.steps >/dev/full'");
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.errors, HasSubstr("standard output: cannot write: No space left"));
  const Outcome unknown = alone(run, "--print-value run.step");
  EXPECT_EQ(unknown.status, exit_status::kConfiguration);
  EXPECT_THAT(unknown.errors, HasSubstr("has no key \"run.step\""));
  EXPECT_THAT(alone(run, "--set run.step=1" + value).errors, HasSubstr("did you mean"));
}

TEST(Program, OneSetTakesSeveralValuesAndMayBeGivenAgain) {
  const TinyRun run;
  const Outcome values =
      alone(run, "--set run.steps=9 run.seed=5 --print-config --set run.threads=4");
  EXPECT_EQ(values.status, 0) << values.errors;
  EXPECT_THAT(values.out, AllOf(ContainsRegex("run.steps += 9 +# --set"),
                                ContainsRegex("run.seed += 5 +# --set"),
                                ContainsRegex("run.threads += 4 +# --set")));
  EXPECT_THAT(shell(run, kTrain + " --help").out,
              ContainsRegex("--set TEXT \\.\\.\\. +key.path=value \\.\\.\\.: replaces values"));
  const Outcome stray = alone(run, "--set run.steps=9 stray --print-config");
  EXPECT_EQ(stray.status, exit_status::kConfiguration);
  EXPECT_THAT(stray.complaints(),
              ::testing::ElementsAre(HasSubstr("--set stray: expected key.path=value")));
  const Outcome alone_stray = alone(run, "stray --print-config");
  EXPECT_EQ(alone_stray.status, exit_status::kConfiguration);
  EXPECT_THAT(alone_stray.complaints(), ::testing::ElementsAre(HasSubstr("not expected: stray")));
}

TEST(Program, ShowsWhereTheTimeGoes) {
  const TinyRun run;
  const std::string trace = run.folder().path("trace.json");
  const Outcome outcome = job(run, 2, "--profile --trace " + trace);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("profile of 2 step(s)"), HasSubstr("AdamW"),
                                 HasSubstr("all_gather"), HasSubstr("trace of steps 2 to 3: ")));
  const auto profile = run.log().back()["profile"];
  EXPECT_EQ(profile["steps"], 2);
  EXPECT_GT(profile["memory_bytes_per_second"], 0.0);
  EXPECT_GT(profile["work"].size(), 10U);
  const auto events = nlohmann::json::parse(run.folder().read("trace.json"))["traceEvents"];
  EXPECT_GT(events.size(), 100U);
}

TEST(Program, ATraceNamesTheStepsThatItHolds) {
  const TinyRun run;
  const std::string trace = "--trace " + run.folder().path("trace.json");
  EXPECT_THAT(alone(run, trace + " --set run.steps=2").out, HasSubstr("trace of step 2: "));
  const Outcome empty = alone(run, trace + " --set run.steps=1");
  EXPECT_EQ(empty.status, exit_status::kConfiguration);
  EXPECT_THAT(empty.complaints(),
              ::testing::ElementsAre(HasSubstr("run.trace_from is 2, run.steps is 1: no step")));
  EXPECT_EQ(alone(run, trace + " --set run.steps=1 run.trace_from=1").status, 0);
}

TEST(Program, NamesAMisspeltFlagBeforeAMissingOne) {
  const TinyRun run;
  const Outcome misspelt = shell(run, kTrain + " --confg " + run.config());
  EXPECT_EQ(misspelt.status, exit_status::kConfiguration);
  EXPECT_THAT(misspelt.errors, HasSubstr("--confg"));
  const Outcome bare = shell(run, kTrain + " c.json --plan");
  EXPECT_EQ(bare.status, exit_status::kConfiguration);
  EXPECT_THAT(
      bare.complaints(),
      ::testing::ElementsAre(HasSubstr("not expected: c.json; write --config c.json; see")));
  EXPECT_THAT(misspelt.errors, Not(HasSubstr("write --config")));
  const Outcome missing = shell(run, kTrain + " --plan");
  EXPECT_EQ(missing.status, exit_status::kConfiguration);
  EXPECT_THAT(missing.errors, HasSubstr("--config is required; see zero_train --help"));
}

TEST(Program, TrainsOnAMesh) {
  const TinyRun run;
  const Outcome mesh = job(run, 4,
                           "--set mesh.tensor=2 --set mesh.sequence_parallel=true --set "
                           "train_batch_size=4");
  EXPECT_EQ(mesh.status, 0) << mesh.errors;
  EXPECT_THAT(mesh.out, AllOf(HasSubstr("mesh: replicate 1 x shard 2 x tensor 2"),
                              HasSubstr("as planned, to the byte")));
}

TEST(Program, TrainsWithStatesOnNvme) {
  const TinyRun run;
  EXPECT_EQ(job(run, 2, "").status, 0);
  const auto hash = run.log().back()["state_hash"];
  const std::string nvme =
      " --set zero_optimization.offload_optimizer.device=nvme "
      "zero_optimization.offload_optimizer.nvme_path=" +
      run.folder().path();
  const Outcome plan = alone(run, "--plan --world 2" + nvme);
  EXPECT_EQ(plan.status, 0) << plan.errors;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("optimizer states are in a file of each rank in "),
                              HasSubstr("in files, beside memory")));
  const Outcome outcome = job(run, 2, nvme);
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("as planned, to the byte"),
                                 HasSubstr(" in " + run.folder().path() + ", is moved through ")));
  EXPECT_EQ(run.log().back()["state_hash"], hash);
  const Outcome shards = job(run, 2,
                             nvme +
                                 " zero_optimization.offload_param.device=nvme "
                                 "zero_optimization.stage3_param_persistence_threshold=0");
  EXPECT_EQ(shards.status, 0) << shards.errors;
  EXPECT_THAT(shards.out,
              AllOf(HasSubstr("as planned, to the byte"),
                    ContainsRegex("[0-9]+ % of a rank's parameters, .* are in its file")));
  EXPECT_EQ(run.log().back()["state_hash"], hash);
}

struct Mistake {
  const char* name;
  const char* arguments;  // FOLDER stands for the run's folder
  const char* complaint;
};

class BadInput : public ::testing::TestWithParam<Mistake> {};

TEST_P(BadInput, EndsAllRanksWithOneMessage) {
  const TinyRun run;
  const std::string whole = run.folder().read("train_000000.bin");
  run.folder().write("cut.bin", whole.substr(0, 2000));
  run.folder().write("text.bin", std::string(5000, 'x'));
  run.folder().write("lying.safetensors", std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  std::string arguments = GetParam().arguments;
  for (std::size_t at = arguments.find("FOLDER"); at != std::string::npos;
       at = arguments.find("FOLDER")) {
    arguments.replace(at, 6, run.folder().path());
  }
  const Outcome outcome = job(run, 3, arguments);
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "the job hung";
  const auto complaints = outcome.complaints();
  ASSERT_EQ(complaints.size(), 1U) << outcome.errors << outcome.out;
  EXPECT_THAT(complaints[0], ContainsRegex(GetParam().complaint));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("terminate called")));
}

INSTANTIATE_TEST_SUITE_P(
    Inputs, BadInput,
    ::testing::Values(
        Mistake{"UnknownFlag", "--nonsense", "not expected: --nonsense; see zero_train --help"},
        Mistake{"MisspeltFlag", "--print_config", "--print_config: did you mean --print-config"},
        Mistake{"TwoConfigurations", "--config FOLDER/none.json",
                "--config: At Most 1 required but received 2"},
        Mistake{"UnknownKey", "--set run.stepz=3", "did you mean \"run.steps\""},
        Mistake{"ImpossibleBatch", "--set train_batch_size=13",
                "13 is not a multiple of .* world 3 = 6"},
        Mistake{"ImpossibleMesh", "--set mesh.tensor=2",
                "mesh is 1 x -1 x 2 .* the 3 rank.s. of this job; .* must divide 3"},
        Mistake{"MissingData", "--set data.train=FOLDER/none.bin", "none.bin: cannot open"},
        Mistake{"TruncatedData", "--set data.train=FOLDER/cut.bin",
                "has 2000 bytes, expected 4024"},
        Mistake{"WrongMagic", "--set data.train=FOLDER/text.bin", "expected the magic 20240520"},
        Mistake{"SmallerThanABatch", "--set train_batch_size=600", "fewer than one batch of 600"},
        Mistake{"SmallVocabulary", "--set model.vocabulary=100", "model.vocabulary is 100"},
        Mistake{"UnwritableLog", "--set run.log=FOLDER/none/run.log", "none of .* does not exist"},
        Mistake{"UnwritableTrace", "--trace FOLDER/none/t.json", "run.trace: the folder"},
        Mistake{"MissingTokenizer",
                "--set data.tokenizer=FOLDER/none.model run.save_weights=FOLDER/new/",
                "data.tokenizer: .*none.model is copied, and cannot be read: "},
        Mistake{"UnwritableWeights", "--set run.save_weights=FOLDER/none/w",
                "run.save_weights: .*none/w: cannot write there: .*none: No such file"},
        Mistake{"UnwritableFolder", "--set run.save_weights=FOLDER/none/new/",
                "run.save_weights: .*none/new: cannot write there: .*none: No such file"},
        Mistake{"FolderWithoutWeights", "--set run.init=FOLDER",
                "run.init: .*: found neither model.safetensors nor"},
        Mistake{"WeightsIntoADevice", "--set run.save_weights=/dev/null",
                "run.save_weights: /dev/null: is there already and is not a regular file"},
        Mistake{
            "MissingFolderOfStates",
            "--set zero_optimization.offload_optimizer.device=nvme "
            "zero_optimization.offload_optimizer.nvme_path=FOLDER/none",
            "offload_optimizer.nvme_path: .*none is not there; make it on the disk that you mean"},
        Mistake{"LyingWeights", "--set run.init=FOLDER/lying.safetensors", "lying.safetensors"},
        Mistake{"NotANumber",
                "--set optimizer.type=SGD --set optimizer.params.lr=1e6 --set gradient_clipping=0",
                "step 2: the .* is NaN or infinite, first on rank [0-2]"}),
    [](const auto& input) { return input.param.name; });

TEST(Program, RanksThatDifferAreNamed) {
  const TinyRun run;
  const std::string program = kTrain + " --config " + run.config();
  const Outcome seeds =
      shell(run, kJob + "-np 1 " + program + " : -np 1 " + program + " --set run.seed=2");
  EXPECT_NE(seeds.status, 0);
  EXPECT_THAT(
      seeds.complaints(),
      ::testing::ElementsAre(HasSubstr("rank 1 has \"run.seed: 2\", rank 0 has \"run.seed: 7\"")));
  const Outcome one_fails =
      shell(run, kJob + "-np 1 " + program + " : -np 1 " + program + " --set run.seed=x");
  EXPECT_NE(one_fails.status, 0);
  EXPECT_THAT(one_fails.complaints(),
              ::testing::ElementsAre(HasSubstr("[rank 1] --set: run.seed: found \"x\"")));
}

}  // namespace
}  // namespace zero
