// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/launch/shell.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Scratch;
using testing::shell;

const std::string kScale = ZERO_SCALE;
const std::string kTiny =
    " --model family=gpt2,layers=1,width=32,heads=2,context=32,vocabulary=256 --sequence 16 "
    "--batch "
    "4 --micro 2 --worlds 1,2 --stages 0,3 --scaling strong --repeats 2 --steps 3 --warmup 1 "
    "--dtype fp32 "
    "--set run.threads=1 ";

TEST(ScaleProgram, MeasuresTwoWorldsAndGoesOn) {
  const Scratch folder;
  const std::string report = folder.path("report");
  const Outcome first = shell(folder, kScale + kTiny + "--report " + report);
  ASSERT_EQ(first.status, 0) << first.errors << first.out;
  EXPECT_THAT(first.out, AllOf(HasSubstr("6/6 strong, stage 3, 2 ranks, run 2 of 2: "),
                               HasSubstr("| one process |"), HasSubstr("report.html")));
  const auto json = nlohmann::json::parse(testing::file_bytes(report + "/report.json"));
  ASSERT_EQ(json["rows"].size(), 3U);
  const auto& one = json["rows"][0];
  const auto& sharded = json["rows"][2];
  EXPECT_EQ(one["median"]["state_hash"], sharded["median"]["state_hash"]);
  EXPECT_EQ(sharded["tokens_per_second"].size(), 2U);
  EXPECT_GT(sharded["median"]["communication_seconds"].get<double>(), 0.0);
  EXPECT_GT(sharded["flop_share"].get<double>(), 0.0);
  EXPECT_TRUE(sharded["median"]["plan_exact"].get<bool>());
  const Outcome again = shell(folder, kScale + kTiny + "--report " + report);
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_EQ(again.out.find("6/6"), std::string::npos) << again.out;  // nothing is run again
}

TEST(ScaleProgram, ARunThatFailsIsARowAndAStatus) {
  const Scratch folder;
  const Outcome outcome =
      shell(folder, kScale + kTiny + "--set run.memory_limit=4KiB --report " + folder.path("r"));
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("| FAILED: zero_train: "), HasSubstr("memory_limit")));
}

TEST(ScaleProgram, ACheckThatIsEndedLeavesNoRanks) {
  const Scratch folder;
  const std::string mpirun =
      folder.write("mpirun", "#!/bin/sh\ntrap '' TERM\necho $$ >" + folder.path("pid") +
                                 "\nkill -TERM $PPID\nsleep 1000\nsleep 1000\n");
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  const Outcome outcome = shell(folder, "env PATH=" + folder.path() + ":$PATH " + kScale +
                                            " --check --launcher mpirun --hosts localhost:2");
  EXPECT_EQ(outcome.status, 128 + 15) << outcome.errors;
  const std::string pid = folder.read("pid");
  ASSERT_FALSE(pid.empty());
  EXPECT_FALSE(std::filesystem::exists("/proc/" + pid.substr(0, pid.find('\n'))));
}

TEST(ScaleProgram, ACheckWithoutAPlaceForItsOutputSaysHowToGiveOne) {
  const Scratch folder;
  for (const std::string& none : {std::string("/proc"), folder.path("none")}) {
    const Outcome outcome = shell(folder, "env TMPDIR=" + none + " " + kScale +
                                              " --check --launcher mpirun --hosts localhost:2");
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_THAT(outcome.errors,
                AllOf(HasSubstr("zero_scale: " + none + "/zero_check_"),
                      HasSubstr(": cannot be made: No such file or directory; set TMPDIR to a "
                                "folder that can be written to")));
  }
}

/// A shell of srun (srun -n 8 --pty bash) is in a step, and no rank.
TEST(ScaleProgram, ACheckFromAShellOfAStepStartsItsRanks) {
  const Scratch folder;
  const std::string srun =
      folder.write("srun", "#!/bin/sh\necho \"got $* ${SLURM_PROCID-none}\"\n");
  std::filesystem::permissions(srun, std::filesystem::perms::owner_all);
  const Outcome outcome =
      shell(folder, "env PATH=" + folder.path() +
                        ":$PATH SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=8 "
                        "SLURM_LOCALID=0 SLURM_NNODES=1 SLURM_NODELIST=n1 " +
                        kScale + " --check --launcher srun");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("got --nodes=1 --ntasks=8 "), HasSubstr(" --overlap "),
                                 HasSubstr(" --check --rank-of-check "), HasSubstr(" none\n")));
}

TEST(CloudScripts, GiveEachTaskItsShareOfTheCores) {
  const Scratch folder;
  const std::string srun = folder.write("srun", "#!/bin/sh\necho \"$SRUN_CPUS_PER_TASK: $*\"\n");
  std::filesystem::permissions(srun, std::filesystem::perms::owner_all);
  const std::string job = "env PATH=" + folder.path() +
                          ":$PATH ZERO_JOB_SECRET_FILE=" + folder.write("secret", "s") +
                          " ZERO_TRAIN=train SLURM_NTASKS=16 SLURM_NNODES=2 "
                          "SLURM_NTASKS_PER_NODE=8 SLURM_ARRAY_TASK_ID=4 ";
  const auto runs = [&](const std::string& more, const char* script) {
    return shell(folder, job + more + " bash " ZERO_CLOUD "/" + script + " --config c").out;
  };
  EXPECT_EQ(runs("SLURM_CPUS_ON_NODE=96", "train.sbatch"),
            "12: --kill-on-bad-exit=1 train --config c\n");
  EXPECT_EQ(runs("SLURM_CPUS_ON_NODE=4", "train.sbatch").substr(0, 3), "1: ");
  EXPECT_EQ(runs("SLURM_CPUS_ON_NODE=96 SLURM_CPUS_PER_TASK=5", "train.sbatch").substr(0, 3),
            "5: ");
  EXPECT_EQ(runs("SLURM_CPUS_ON_NODE=96", "worlds.sbatch"),
            "12: --kill-on-bad-exit=1 --nodes 1 --ntasks 4 train --config c --set "
            "run.log=world_4/run.log\n");
}

TEST(ScaleProgram, PrintsCommandsAndRefusesWhatItCannotStart) {
  const Scratch folder;
  const Outcome dry = shell(folder, kScale + kTiny + "--dry-run --launcher mpirun --hosts a:1,b:1");
  EXPECT_EQ(dry.status, 0) << dry.errors;
  EXPECT_THAT(dry.out, AllOf(HasSubstr("# strong, stage 3, 2 ranks\nmpirun -np 2 "),
                             HasSubstr(" --host a:1,b:1 "), HasSubstr("--set run.threads=1\n")));
  const auto refused = [&](const std::string& flags, const std::string& text) {
    const Outcome outcome = shell(folder, kScale + kTiny + flags);
    EXPECT_EQ(outcome.status, 1) << flags;
    EXPECT_THAT(outcome.errors, HasSubstr("zero_scale: " + text)) << flags;
  };
  refused("", "--report is missing");
  refused("--dry-run --launcher mpirun --hosts a:1", "--worlds: found 2, expected at most the 1");
  refused("--dry-run --agent rsh", "--agent: --launcher local has no use for it");
  refused("--dry-run --repeat 3", "");
  refused("--dry-run --worlds 1,8",
          "--batch 4: strong, stage 0, 8 ranks has 8 data ranks; give "
          "--batch 8 (a multiple of 8), or --scaling weak");
  refused("--dry-run --simulate " +
              folder.write("c.json", R"({"devices": 2, "kind": "gpu", "memory": "40GB"})"),
          "--simulate " + folder.path("c.json") +
              ": kind is gpu, expected that of --device cpu; add --device cuda");
  refused("--dry-run --set run.device=cuda", "--set run.device=cuda: the sweep sets run.device");
}

}  // namespace
}  // namespace zero
