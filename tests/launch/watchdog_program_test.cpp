// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Ranks of zero_train that die or hang beside ranks of the same host.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "launch/flight/flight_reader.h"
#include "launch/watch/doctor.h"
#include "tests/launch/program.h"

namespace zero {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using namespace testing;

const std::string kKillLast = "kill -KILL $(pgrep -P $job | tail -1)";
const std::string kStopLast = "kill -STOP $(pgrep -P $job | tail -1)";

std::string started(int count) { return kJob + "-np " + std::to_string(count) + " " + kTrain; }

void expect_fault_status(const Outcome& outcome) {
  EXPECT_NE(outcome.status, 0);
  EXPECT_NE(outcome.status, 124) << "the job hung";
}

TEST(ProgramWatchdog, TellsOnceOfAKilledRankWithItsLastCollective) {
  for (const int count : {2, 3}) {
    const TinyRun run;
    const Outcome outcome = disturbed(run, started(count), kKillLast);
    expect_fault_status(outcome);
    EXPECT_THAT(
        outcome.complaints(),
        ElementsAre(ContainsRegex("zero_train: rank [0-3] ended without a word: by SIGKILL, "
                                  "a crash or the like.*its last collective, "
                                  "[a-z_]+.[^)]*. #[0-9]+")))
        << outcome.errors;
    EXPECT_THAT(outcome.errors,
                ContainsRegex("no checkpoint .run.checkpoint.folder is not set.: started again, "
                              "the run begins anew; more: zero_doctor [^ ]*run.log.flight\n"));
    EXPECT_THAT(outcome.out, Not(HasSubstr("ended by SIGTERM")));
  }
}

TEST(ProgramWatchdog, NeedsNoLauncherToEndAllRanks) {
  const TinyRun run;
  const std::string set = "run.watchdog=true";
  const Outcome outcome =
      disturbed(run, ranks_without_launcher(run, set), kKillLast, "--set " + set);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.complaints(),
              ElementsAre(ContainsRegex("zero_train: rank [12] ended without a word")))
      << outcome.errors;
}

TEST(ProgramWatchdog, TellsOfARankThatASignalHasEnded) {
  const TinyRun run;
  const std::string set = "run.watchdog=true";
  const Outcome outcome = disturbed(run, ranks_without_launcher(run, set),
                                    "kill -TERM $(pgrep -P $job | tail -1)", "--set " + set);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.complaints(), ElementsAre(ContainsRegex("rank [12] ended by SIGTERM")))
      << outcome.errors;
}

TEST(ProgramWatchdog, TellsOnceOfAStoppedRankAndEndsIt) {
  for (const int count : {2, 3}) {
    const TinyRun run;
    const Outcome outcome = disturbed(run, started(count), kStopLast, "--set run.hang_timeout=1");
    expect_fault_status(outcome);
    ASSERT_EQ(outcome.complaints().size(), 1U) << outcome.errors;
    EXPECT_THAT(outcome.errors, ContainsRegex("rank [0-3] .*is stopped"));
    EXPECT_THAT(outcome.errors, HasSubstr("to stop a rank in a debugger, give run.watchdog=false"));
  }
  const TinyRun run;
  const std::string set = "run.hang_timeout=1";
  const Outcome outcome =
      disturbed(run, ranks_without_launcher(run, set), kStopLast, "--set " + set);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, ContainsRegex("rank [12] .*is stopped"));
  const Examination found = examine(run.folder().path("run.log.flight"));
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::hang);
  ASSERT_EQ(found.diagnosis.culprits.size(), 1U);
  EXPECT_THAT(outcome.errors,
              HasSubstr("rank " + std::to_string(found.diagnosis.culprits[0]) + " is "));
}

TEST(ProgramWatchdog, NamesAnEndlessLoopWithItsUnitAndItsStack) {
  const std::string faults =
      R"( 'run.faults=[{"kind": "loop", "rank": 1, "step": 5, "phase": "backward"}]')";
  for (const std::string& start : {started(2), kTrain + " --local-ranks 2"}) {
    const TinyRun run;
    const Outcome outcome =
        shell(run, "env ZERO_ALLOW_FAULTS=1 " + start + " --config " + run.config() +
                       " --set run.steps=1000000 run.hang_timeout=1" + faults);
    expect_fault_status(outcome);
    EXPECT_THAT(outcome.errors, ContainsRegex("zero_train: rank 1 has not entered [a-z_]+"));
    EXPECT_THAT(outcome.errors, ContainsRegex("rank 1 is in .backward. of step 5; its last compute "
                                              "was backward "));
    EXPECT_THAT(outcome.errors, ContainsRegex("rank 1's stack:"));
    EXPECT_THAT(outcome.errors, HasSubstr("  host thread and compute stream:"));
    EXPECT_THAT(outcome.errors, HasSubstr("zero::Trainer::"));
  }
}

TEST(ProgramWatchdog, NamesAnEndlessLoopOutsideOfSteps) {
  for (const std::string& phase : {std::string("start"), std::string("load"), std::string("end")}) {
    const TinyRun run;
    const Outcome outcome = shell(
        run, "env ZERO_ALLOW_FAULTS=1 " + started(2) + " --config " + run.config() +
                 " --set run.steps=3 'run.faults=[{\"kind\": \"loop\", \"rank\": 1, \"phase\": \"" +
                 phase + "\"}]'");
    expect_fault_status(outcome);
    // The start begins before data are opened.
    const std::string where = phase == "start" ? "all_gather.data. #1 of group world" : "[a-z_]+";
    EXPECT_THAT(outcome.errors, ContainsRegex("zero_train: rank 1 has not entered " + where));
    EXPECT_THAT(outcome.errors, ContainsRegex("rank 0 has waited for [0-9.]+ s"));
    EXPECT_THAT(outcome.errors, ContainsRegex("rank 1 is in ." + phase));
    EXPECT_THAT(outcome.errors, ContainsRegex("rank 1's stack:")) << phase;
  }
}

// GPUs talk through NCCL, which they start behind that.
TEST(ProgramWatchdog, RanksMeetAsTheHostsOfGpusAndAsTheWorldOfCpus) {
  for (const auto& [device, group] : {std::pair("cpu", "world"), std::pair("cuda", "hosts")}) {
    const TinyRun run;
    const std::string flight = run.folder().path("flight");
    const Outcome outcome =
        shell(run, "env ZERO_ALLOW_FAULTS=1 " + started(2) + " --config " + run.config() +
                       " --set run.device=" + device + " run.flight_folder=" + flight +
                       R"( 'run.faults=[{"kind": "kill", "rank": 1, "phase": "start"}]')");
    expect_fault_status(outcome);
    const Examination found = examine(flight);
    ASSERT_EQ(found.files.size(), 2U) << outcome.errors;
    EXPECT_EQ(found.files[1].groups().at(0).name, group) << outcome.errors;
  }
}

/// One of two ranks, told by variables where they meet.
std::string one_of_two(const TinyRun& run, int rank, const std::string& set) {
  return fmt::format(
      "env --default-signal=INT RANK={0} LOCAL_RANK={0} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 "
      "MASTER_ADDR=127.0.0.1 MASTER_PORT={1} {2} --config {3} --set {4}",
      rank, 27000 + ::getpid() % 2000, kTrain, run.config(), set);
}

/// Before the command of a rank whose data are on a server that does not answer.
std::string without_data(const TinyRun& run) {
  return fmt::format("LD_PRELOAD={} ZERO_STUCK_FILE={} ", ZERO_STUCK_OPEN,
                     run.folder().path("train_000000.bin"));
}

TEST(ProgramWatchdog, TellsWhereARankHangsThatOpensItsData) {
  const TinyRun run;
  const std::string set = "run.collective_warning=1 run.collective_timeout=4";
  run.folder().write("job.sh", without_data(run) + one_of_two(run, 1, set) + " &\n" +
                                   one_of_two(run, 0, set) + "\nstatus=$?; wait; exit $status");
  const Outcome outcome = shell(run, "bash " + run.folder().path("job.sh"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.errors, ContainsRegex("warning: .rank 0. all_gather.data.: waiting for 1 s "
                                            "for rank 1 .process"));
  EXPECT_THAT(outcome.errors,
              ContainsRegex("rank 1 has not entered all_gather.data. #1 of group world before the "
                            "first step, in which rank 0 has waited for [0-9.]+ s\n"
                            "rank 1 is in .start. before the first step"));
  EXPECT_THAT(outcome.errors, ContainsRegex("rank 1's stack:\n  host thread:\n"));
  EXPECT_THAT(outcome.errors, ContainsRegex("zero::(files|Batches|TokenFile|TokenStream)"));
}

/// What rank 0 prints if `order` is given once it has waited for four seconds for rank 1.
Outcome ordered(const TinyRun& run, const std::string& rank_1, const std::string& rank_0,
                const std::string& order) {
  run.folder().write("job.sh", rank_1 + " &\n" + rank_0 +
                                   " & job=$!\nuntil grep -q 'waiting for 4 s for rank 1' " +
                                   run.folder().path("stderr.txt") +
                                   " || ! kill -0 $job; do sleep 0.1; done\n" + order +
                                   "\nwait $job; status=$?; wait; exit $status");
  return shell(run, "bash " + run.folder().path("job.sh"));
}

TEST(ProgramWatchdog, AnOrderToEndTellsForWhomTheJobWaits) {
  const TinyRun run;
  const std::string set = "run.collective_warning=4";
  const Outcome outcome = ordered(run, without_data(run) + one_of_two(run, 1, set),
                                  one_of_two(run, 0, set), "kill -TERM $job");
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.out, ContainsRegex("\nended by SIGTERM before the first step\n"
                                         "rank 0 has waited for [0-9.]+ s for rank 1, which is in "
                                         ".start. before the first step\n"));
}

// The save that was asked for does not come.
TEST(ProgramWatchdog, OrdersToSaveAndToEndTellForWhomTheJobWaits) {
  const TinyRun run;
  const std::string set =
      "run.collective_warning=4 run.checkpoint.folder=" + run.folder().path("ck") +
      R"( 'run.faults=[{"kind": "loop", "rank": 1, "step": 1, "phase": "forward"}]')";
  const std::string rank = "ZERO_ALLOW_FAULTS=1 ";
  const Outcome outcome =
      ordered(run, rank + one_of_two(run, 1, set), rank + one_of_two(run, 0, set),
              "for signal in USR1 TERM; do kill -$signal $job; until grep -q SIG$signal: " +
                  run.folder().path("stdout.txt") +
                  " || ! kill -0 $job; do sleep 0.1; done; done; sleep 0.5; kill -INT $job");
  EXPECT_EQ(outcome.status, 130) << outcome.errors;
  const std::string waits =
      "\nrank 0 has waited for [0-9.]+ s for rank 1, which is in .forward. of step 1\n";
  EXPECT_THAT(outcome.out, ContainsRegex("\nSIGUSR1: saving a checkpoint after this step" + waits));
  EXPECT_THAT(outcome.out, ContainsRegex("\nSIGTERM: saving a checkpoint after this step, then "
                                         "ending; from now on SIGINT .Ctrl-C. ends at once" +
                                         waits));
  EXPECT_THAT(outcome.out, ContainsRegex("\nended by SIGINT[^\n]*" + waits));
}

// Either may be wrong.
TEST(ProgramWatchdog, OfTwoRanksWhoseCallsDifferBothCallsAreTold) {
  const TinyRun run;
  const Outcome outcome = shell(
      run,
      "env ZERO_ALLOW_FAULTS=1 " + started(2) + " --config " + run.config() +
          R"( --set 'run.faults=[{"kind": "skip", "rank": 1, "step": 2, "phase": "reduce"}]')");
  expect_fault_status(outcome);
  EXPECT_THAT(
      outcome.errors,
      ContainsRegex("zero_train: .rank [01]. [a-z_]+.[^)]*. met [a-z_]+.[^)]*. of rank [01]: "
                    "one of them left a call out or took another branch"));
}

TEST(ProgramWatchdog, AnErrorOfAllRanksIsAFaultInTheirFlightFiles) {
  const TinyRun run;
  const std::string flight = run.folder().path("flight");
  const Outcome outcome =
      shell(run, started(2) + " --config " + run.config() +
                     " --set optimizer.type=SGD optimizer.params.lr=1e6 gradient_clipping=0 "
                     "run.steps=10 run.flight_folder=" +
                     flight);
  EXPECT_EQ(outcome.status, 1) << outcome.errors;
  const Examination found = examine(flight);
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::error);
  EXPECT_THAT(found.diagnosis.lines,
              ElementsAre(ContainsRegex("ranks 0-1 ended by an error: step [0-9]+: .*NaN")));
  // Nor does a start that fails, as without the disk of its data, destroy them.
  const Outcome start = shell(run, started(2) + " --config " + run.config() + " --set data.train=" +
                                       run.folder().path("none") + " run.flight_folder=" + flight);
  EXPECT_NE(start.status, 0);
  EXPECT_THAT(start.errors, HasSubstr("none: cannot open for reading"));
  EXPECT_EQ(examine(flight).ranks.at(0).run, found.ranks.at(0).run) << start.errors;
}

// A suspended job or laptop, a frozen container.
TEST(ProgramWatchdog, AJobThatIsStoppedAsAWholeGoesOn) {
  const TinyRun run;
  const std::string log = run.folder().path("run.log");
  const Outcome outcome = disturbed(
      run, started(3),
      "ranks=$(pgrep -P $job); kill -STOP $ranks; sleep 2; kill -CONT $ranks; lines=$(wc -l <" +
          log + "); until [ $(wc -l <" + log +
          ") -gt $((lines + 20)) ] || ! kill -0 $job; do sleep 0.1; done; sleep 2; kill -TERM $job",
      "--set run.hang_timeout=1");
  EXPECT_THAT(outcome.complaints(), IsEmpty());
  EXPECT_THAT(outcome.out, HasSubstr("ended by SIGTERM"));
}

// At whatever moment Ctrl-C comes, from the first file on.
TEST(ProgramWatchdog, AnInterruptOfAStartIsNoFault) {
  for (const char* const moment : {"", "sleep 0.02; ", "sleep 0.1; "}) {
    const TinyRun run;
    const std::string flight = run.folder().path("flight");
    run.folder().write(
        "start.sh", "env --default-signal=INT,HUP " + kTrain + " --local-ranks 2 --config " +
                        run.config() + " --set run.steps=1000000 run.flight_folder=" + flight +
                        " & job=$!; until [ -e " + flight + " ] || ! kill -0 $job; do :; done; " +
                        moment + "kill -INT $job; wait $job");
    const Outcome outcome = shell(run, "bash " + run.folder().path("start.sh"));
    EXPECT_EQ(outcome.status, 130) << outcome.errors;
    if (!std::filesystem::exists(flight) || std::filesystem::is_empty(flight)) continue;
    // Also where no rank had come to the end of making its file.
    const Examination found = examine(flight);
    EXPECT_EQ(found.diagnosis.what, Diagnosis::What::nothing) << text_of(found);
  }
}

TEST(ProgramWatchdog, AGoodEndIsNoFault) {
  const TinyRun run;
  for (const char* const start : {"-np 3 ", "-np 2 "}) {
    const Outcome outcome = shell(run, kJob + start + kTrain + " --config " + run.config());
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.complaints(), IsEmpty());
  }
  // A script tells that from a wrong path.
  const std::string checkpoints = run.folder().path("ck");
  const Outcome saved = shell(run, kJob + "-np 2 " + kTrain + " --config " + run.config() +
                                       " --set run.checkpoint.folder=" + checkpoints);
  EXPECT_EQ(saved.status, 0) << saved.errors;
  const Examination found = examine(checkpoints);
  EXPECT_EQ(found.diagnosis.what, Diagnosis::What::nothing);
  EXPECT_THAT(text_of(found), HasSubstr("step 1 was ended by no fault"));
  EXPECT_TRUE(json_of(found).at("ended_well").is_null());
  EXPECT_TRUE(json_of(found).at("newest_checkpoint").is_number());
  EXPECT_TRUE(json_of(found).at("ranks").empty());
}

}  // namespace
}  // namespace zero
