// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Ranks of zero_train that are killed, stopped, stuck or interrupted.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <sstream>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "tests/launch/program.h"

namespace zero {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace testing;

// Files of states have no names.
TEST(Program, AKilledRankLeavesNoFileOfStates) {
  const TinyRun run;
  const Scratch nvme;
  const Outcome outcome =
      disturbed(run, kJob + "-np 2 " + kTrain, "kill -KILL $(pgrep -P $job | tail -1)",
                "--set zero_optimization.offload_optimizer.device=nvme "
                "zero_optimization.offload_optimizer.nvme_path=" +
                    nvme.path());
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "the job hung";
  EXPECT_TRUE(nvme.names().empty());
}

TEST(Program, AStoppedRankIsNamedAndEndsTheJob) {
  const TinyRun run;
  const Outcome outcome =
      disturbed(run, kJob + "-np 3 " + kTrain, "kill -STOP $(pgrep -P $job | tail -1)",
                "--set run.watchdog=false run.collective_warning=1 run.collective_timeout=2");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "the job hung";
  EXPECT_THAT(outcome.errors,
              ContainsRegex("zero_train: warning: .rank [0-2]. [a-z_]+.[^)]*., step [0-9]+: "
                            "waiting for 1 s for rank [0-2] .process [0-9]+ is stopped."));
  EXPECT_THAT(outcome.errors,
              ContainsRegex("zero_train: .rank [0-2]. [a-z_]+.[^)]*.*, step [0-9]+: waiting for 2 "
                            "s for rank [0-2] .process [0-9]+ is stopped., the timeout of "
                            "collectives"));
}

// The first rank writes its log to a pipe that nobody empties.
TEST(Program, AThreadThatIsStuckIsNamedAndEndsTheProcess) {
  const TinyRun run;
  const std::string pipe = run.folder().path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  run.folder().write(
      "script.sh", "sleep 90 < " + pipe + " & reader=$!; " + kTrain + " --config " + run.config() +
                       " --local-ranks 3 --set run.log=" + pipe +
                       " --set run.steps=1000000 --set run.collective_warning=1 "
                       "--set run.collective_timeout=2; status=$?; kill $reader; exit $status");
  const Outcome outcome = shell(run, "bash " + run.folder().path("script.sh"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors,
              ContainsRegex("zero_train: .rank [12]. [a-z_]+.[^)]*.*, step [0-9]+: waiting for 2 "
                            "s for rank 0 .a thread., the timeout of collectives"));
  EXPECT_THAT(outcome.errors, HasSubstr("rank 0 is in \"between steps\" of step"));
}

// Without a watchdog each rank that waits finds out for itself.
TEST(Program, AKilledRankIsNamedByTheOthers) {
  const TinyRun run;
  const Outcome outcome =
      disturbed(run, ranks_without_launcher(run, "run.watchdog=false"),
                "kill -KILL $(pgrep -P $job | tail -1)", "--set run.watchdog=false");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "the job hung";
  EXPECT_THAT(outcome.errors, ContainsRegex("[(].*rank [12]"));
}

TEST(Program, AnInterruptEndsAllRanksAndLeavesAWholeLog) {
  for (const std::string& start : {kTrain, kTrain + " --local-ranks 3", kJob + "-np 3 " + kTrain}) {
    const TinyRun run;
    const Outcome outcome = disturbed(run, start, "kill -TERM $job");
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.status, 124) << "the job hung";
    EXPECT_THAT(outcome.complaints(), ::testing::IsEmpty());
    const std::string why = start.starts_with(kJob) ? " (mpirun passes Ctrl-C on as SIGTERM)" : "";
    EXPECT_THAT(outcome.out, HasSubstr("ended by SIGTERM" + why +
                                       "; the log holds every step done; nothing was "
                                       "saved (run.checkpoint.folder is not set)\n"));
    EXPECT_EQ(run.log().front()["step"], 1);  // every line is whole JSON
  }
}

/// Two starts with one log, or one folder of checkpoints: the second is refused by name of the
/// first, which goes on.
void second_start_is_refused(const std::string& arguments, const std::string& of_second,
                             const std::string& key) {
  const TinyRun run;
  const std::string errors = run.folder().path("second.txt");
  const std::string second = kTrain + " --config " + run.config() + " --local-ranks 2 " +
                             arguments + " " + of_second + " >" + errors + " 2>&1";
  const std::string facts = run.folder().path("facts.txt");
  disturbed(run, kTrain, second + "; echo $? $job >" + facts + "; kill -TERM $job", arguments);
  int status = 0;
  std::string process;
  std::istringstream(run.folder().read("facts.txt")) >> status >> process;
  EXPECT_EQ(status, 1);
  EXPECT_THAT(run.folder().read("second.txt"),
              ContainsRegex("zero_train: .rank 0. " + key + ": [^ ]* is another run's: process " +
                            process + " on host "));
  EXPECT_EQ(run.log().front()["step"], 1) << "the log of the first is as it was";
  EXPECT_FALSE(std::filesystem::exists(run.folder().path("run.log.1")));
}

TEST(Program, ASecondStartWithTheSameLogIsRefused) { second_start_is_refused("", "", "run.log"); }

TEST(Program, ASecondStartInTheSameFolderIsRefused) {
  const testing::Scratch checkpoints;
  second_start_is_refused("--set run.checkpoint.folder=" + checkpoints.path("ck"),
                          "--set run.log=" + checkpoints.path("second.log"),
                          "run.checkpoint.folder");
  EXPECT_FALSE(std::filesystem::exists(checkpoints.path("second.log")));
}

// Nobody empties standard output, which soon is full. The run ends with a checkpoint all the same.
TEST(Program, AFullPipeKeepsNoRunFromItsEnd) {
  const TinyRun run;
  const std::string folder = run.folder().path("ck");
  run.folder().write(
      "script.sh", "mkfifo " + run.folder().path("pipe") + "\nexec 3<>" +
                       run.folder().path("pipe") + "\n" + kTrain + " --config " + run.config() +
                       " --set run.steps=1000000 --set run.checkpoint.folder=" + folder +
                       " >&3 & job=$!\n" +
                       // It trains with an output that is full.
                       "until [ -s " + run.folder().path("run.log") + " ]; do sleep 0.1; done\n" +
                       "dd if=/dev/zero of=" + run.folder().path("pipe") +
                       " bs=4096 count=1000 oflag=nonblock conv=notrunc status=none 2>/dev/null\n" +
                       "kill -TERM $job; wait $job");
  const Outcome outcome = shell(run, "bash " + run.folder().path("script.sh"));
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("SIGTERM: saving a checkpoint after this step"));
  const auto found = find_checkpoints(files::disk(), folder);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found[0].complete());
  EXPECT_EQ(run.log().back().value("after_step", std::int64_t{0}), found[0].name.step);
}

TEST(Program, AReaderThatLeavesTakesNoStepWithIt) {
  const TinyRun run;
  const Outcome outcome = shell(run, "bash -o pipefail -c '" + kTrain + " --config " +
                                         run.config() + " --set run.steps=50 | head -1'");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.complaints(), ::testing::ElementsAre(HasSubstr(
                                        "nobody reads standard output any more; the run goes "
                                        "on, and its log too")));
  EXPECT_EQ(run.log().at(49)["step"], 50);
}

TEST(Program, AClosedOutputTakesNoStepWithIt) {
  const TinyRun run;
  const Outcome outcome = shell(run, "sh -c '" + kTrain + " --config " + run.config() + " >&-'");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.complaints(),
              ::testing::ElementsAre(HasSubstr("nobody reads standard output any more")));
  EXPECT_EQ(run.log().back().value("final", false), true);
}

TEST(Program, ALostReportIsAnErrorAndTakesNoStepWithIt) {
  const TinyRun run;
  const std::string weights = run.folder().path("w.safetensors");
  const Outcome outcome =
      shell(run, "bash -c '" + kTrain + " --config " + run.config() +
                     " --local-ranks 2 --set run.save_weights=" + weights + " >/dev/full'");
  EXPECT_EQ(outcome.status, 1) << outcome.errors;
  EXPECT_THAT(
      outcome.complaints(),
      ::testing::ElementsAre(
          HasSubstr("warning: standard output cannot be written: No space left on device; the run "
                    "goes on, and ends with status 1"),
          HasSubstr("the run is done, but its report is not whole: standard output: No space left "
                    "on device; its log has the figures")));
  EXPECT_EQ(run.log().back().value("final", false), true);
  EXPECT_TRUE(std::filesystem::exists(weights));
}

TEST(Program, ALogThatCannotBeWrittenEndsTheRunSaved) {
  const TinyRun run;
  const std::string folder = run.folder().path("saved");
  const Outcome outcome = alone(run,
                                "--local-ranks 2 --set run.steps=1000000 run.log=/dev/full "
                                "run.checkpoint.folder=" +
                                    folder);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("warning: run.log: cannot write /dev/full"));
  EXPECT_THAT(outcome.out, HasSubstr("the run saves a checkpoint, then ends"));
  EXPECT_THAT(outcome.out, HasSubstr("ended by run.log after step"));
  EXPECT_FALSE(find_checkpoints(files::disk(), folder).empty());
  const Outcome unsaved = alone(run, "--set run.steps=3 run.log=/dev/full");
  EXPECT_EQ(unsaved.status, 1);
  EXPECT_THAT(unsaved.out, HasSubstr("the run goes on without a log"));
  EXPECT_THAT(unsaved.out, HasSubstr("state hash"));
}

TEST(Program, ATraceThatCannotBeWrittenTakesNoWeightsWithIt) {
  const TinyRun run;
  const std::string weights = run.folder().path("weights") + "/";
  const Outcome outcome =
      alone(run, "--local-ranks 2 --trace /dev/full --set run.steps=3 run.save_weights=" + weights);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("run.trace: cannot write /dev/full"));
  EXPECT_TRUE(std::filesystem::exists(weights + "model.safetensors"));
  EXPECT_THAT(outcome.out, HasSubstr("state hash"));
}

TEST(Program, WeightsDoNotReplaceThoseThatTheRunBeginsWith) {
  const TinyRun run;
  const std::string weights = run.folder().path("weights") + "/";
  ASSERT_EQ(alone(run, "--set run.steps=1 run.save_weights=" + weights).status, 0);
  const Outcome outcome =
      alone(run, "--set run.steps=1 run.init=" + weights + " run.save_weights=" + weights);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, HasSubstr("is what the run begins with (model.hf or run.init), and "
                                        "would be lost; give another path"));
}

TEST(Program, ALostTerminalAsksForAnEnd) {
  const TinyRun run;
  const std::string folder = run.folder().path("saved");
  const Outcome outcome =
      disturbed(run, kTrain, "kill -HUP $job", "run.checkpoint.folder=" + folder);
  EXPECT_EQ(outcome.status, 143);
  EXPECT_FALSE(find_checkpoints(files::disk(), folder).empty());
}

// The validation alone would take minutes.
TEST(Program, AValidationIsBrokenOffForASignal) {
  const TinyRun run;
  const std::string folder = run.folder().path("saved");
  const Outcome outcome = disturbed(
      run, kTrain, "sleep 0.5; kill -TERM $job",
      "--local-ranks 2 --set run.checkpoint.folder=" + folder +
          " run.validation_every=2 "
          "data.validation=" +
          write_tokens(run.folder(), "val.bin", std::vector<std::uint32_t>(2'000'000, 7)));
  EXPECT_EQ(outcome.status, 143);
  EXPECT_THAT(outcome.out, HasSubstr("the validation is broken off"));
}

TEST(Program, AFlagThatLaunchersPassIsHeldAgainstItsVariable) {
  const TinyRun run;
  const std::string ends = " --config " + run.config() + " --set run.steps=1";
  EXPECT_EQ(shell(run,
                  "env RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 "
                  "MASTER_PORT=29511 " +
                      kTrain + " --local_rank=0" + ends)
                .status,
            0);
  EXPECT_THAT(alone(run, "--local_rank=0").errors, HasSubstr("but LOCAL_RANK is not set"));
}

TEST(Program, AnInterruptNamesWhatIsLost) {
  const TinyRun run;
  const Outcome weights = disturbed(run, kTrain + " --local-ranks 2", "kill -INT $job",
                                    "--set run.save_weights=" + run.folder().path("w"));
  EXPECT_THAT(weights.out,
              HasSubstr("ended by SIGINT; the log holds every step done; the weights were not "
                        "saved: run.save_weights is written after the last step; nothing was "
                        "saved (run.checkpoint.folder is not set)\n"));
}

// Of each of two jobs one rank alone was started: after 10 s each says for whom it waits.
TEST(Program, ARankThatWaitsForOthersSaysSo) {
  const TinyRun run;
  const int port = 32000 + static_cast<int>(::getpid() % 350) * 2;
  const auto start = [&](int rank) {
    return fmt::format(
        "RANK={} LOCAL_RANK={} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={} {} --config {} "
        "& jobs=\"$jobs $!\"\n",
        rank, rank, port + rank, kTrain, run.config());
  };
  const std::string errors = run.folder().path("stderr.txt");
  run.folder().write("start.sh", start(0) + start(1) +
                                     fmt::format("until grep -q 'has not come' {} && grep -q 'no "
                                                 "answer' {}; do sleep 0.1; done\n",
                                                 errors, errors) +
                                     "kill -TERM $jobs; wait $jobs");
  const Outcome outcome = shell(run, "bash " + run.folder().path("start.sh"));
  EXPECT_THAT(
      outcome.complaints(),
      ::testing::UnorderedElementsAre(
          ContainsRegex("still waiting: .rank 0. rendezvous at .* rank 1 has not come"),
          ContainsRegex("still waiting: .rank 1. rendezvous at 127.0.0.1:[0-9]+: no answer from "
                        "rank 0 within 10 s: Connection refused; check that rank 0 "
                        "runs, and that MASTER_ADDR and MASTER_PORT are its host's")));
  EXPECT_THAT(outcome.out, HasSubstr("ended by SIGTERM before the first step\n"));
}

}  // namespace
}  // namespace zero
