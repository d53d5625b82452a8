// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Ranks of zero_train that are killed, stopped, stuck or interrupted.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/launch/program.h"

namespace zero {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using namespace testing;

/// Starts a long job, waits until it trains, and runs `disturb`; gives the job's outcome.
Outcome disturbed(const TinyRun& run, const std::string& start, const std::string& disturb,
                  const std::string& arguments = "") {
  const std::string script = start + " --config " + run.config() + " --set run.steps=1000000 " +
                             arguments + " & job=$!; " + "until [ -s " +
                             run.folder().file("run.log") + " ]; do sleep 0.1; done; " + disturb +
                             "; wait $job";
  run.folder().write("script.sh", script);
  return shell(run, "bash " + run.folder().file("script.sh"));
}

TEST(Program, AKilledRankEndsTheJob) {
  const TinyRun run;
  const Outcome outcome =
      disturbed(run, kJob + "-np 3 " + kTrain, "kill -KILL $(pgrep -P $job | tail -1)");
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "the job hung";
}

TEST(Program, AStoppedRankIsNamedAndEndsTheJob) {
  const TinyRun run;
  const Outcome outcome =
      disturbed(run, kJob + "-np 3 " + kTrain, "kill -STOP $(pgrep -P $job | tail -1)",
                "--set run.collective_warning=1 --set run.collective_timeout=2");
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
  const std::string pipe = run.folder().file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  run.folder().write(
      "script.sh", "sleep 90 < " + pipe + " & reader=$!; " + kTrain + " --config " + run.config() +
                       " --local-ranks 3 --set run.log=" + pipe +
                       " --set run.steps=1000000 --set run.collective_warning=1 "
                       "--set run.collective_timeout=2; status=$?; kill $reader; exit $status");
  const Outcome outcome = shell(run, "bash " + run.folder().file("script.sh"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors,
              ContainsRegex("zero_train: .rank [12]. [a-z_]+.[^)]*.*, step [0-9]+: waiting for 2 "
                            "s for rank 0 .a thread., the timeout of collectives"));
}

TEST(Program, AKilledRankIsNamedByTheOthers) {
  const TinyRun run;
  const std::string common = " WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                             std::to_string(30000 + static_cast<int>(::getpid() % 2000)) + " ";
  const std::string script = "for rank in 2 1; do env RANK=$rank LOCAL_RANK=$rank" + common +
                             kTrain + " --config " + run.config() +
                             " --set run.steps=1000000 & done\n" + "exec env RANK=0 LOCAL_RANK=0" +
                             common + kTrain + " \"$@\"\n";
  run.folder().write("ranks.sh", script);
  const Outcome outcome = disturbed(run, "bash " + run.folder().file("ranks.sh"),
                                    "kill -KILL $(pgrep -P $job | tail -1)");
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
    EXPECT_THAT(outcome.out,
                HasSubstr("ended by SIGTERM" + why + "; the log holds every step done\n"));
    EXPECT_EQ(run.log().front()["step"], 1);  // every line is whole JSON
  }
}

TEST(Program, AnInterruptNamesWhatIsLost) {
  const TinyRun run;
  const Outcome weights = disturbed(run, kTrain + " --local-ranks 2", "kill -INT $job",
                                    "--set run.save_weights=" + run.folder().file("w"));
  EXPECT_THAT(weights.out,
              HasSubstr("ended by SIGINT; the log holds every step done; the weights were not "
                        "saved: run.save_weights is written after the last step\n"));
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
  const std::string errors = run.folder().file("stderr.txt");
  run.folder().write("start.sh", start(0) + start(1) +
                                     fmt::format("until grep -q 'has not come' {} && grep -q 'no "
                                                 "answer' {}; do sleep 0.1; done\n",
                                                 errors, errors) +
                                     "kill -TERM $jobs; wait $jobs");
  const Outcome outcome = shell(run, "bash " + run.folder().file("start.sh"));
  EXPECT_THAT(outcome.complaints(),
              ::testing::UnorderedElementsAre(
                  ContainsRegex("still waiting: .rank 0. store at .* rank 1 has not come"),
                  ContainsRegex("still waiting: .rank 1. store at 127.0.0.1:[0-9]+: no answer from "
                                "rank 0 within 10000 ms: Connection refused; check that rank 0 "
                                "runs, and that address and port are its host's")));
  EXPECT_THAT(outcome.out, HasSubstr("ended by SIGTERM before the first step\n"));
}

}  // namespace
}  // namespace zero
