// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// zero_train with run.elastic, on whatever number of ranks its launcher starts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/launch/program.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

const std::string kElasticSteps = " --set run.elastic=true train_batch_size=16 ";

/// Losses and the state_hash of a run's log, which must not depend on the ranks.
nlohmann::json bits(const TinyRun& run) {
  nlohmann::json all = nlohmann::json::array();
  for (const nlohmann::json& line : run.log()) {
    for (const char* const key : {"loss", "grad_norm", "state_hash"}) {
      if (line.contains(key)) all.push_back({key, line[key]});
    }
  }
  return all;
}

/// Those of six steps on one rank, in one start.
nlohmann::json undisturbed_bits() {
  const TinyRun run;
  const Outcome outcome = alone(run, kElasticSteps + "run.steps=6");
  EXPECT_EQ(outcome.status, exit_status::kOk) << outcome.errors;
  return bits(run);
}

std::string up_to(const TinyRun& run, int steps) {
  return fmt::format("{}run.steps={} run.checkpoint.folder={} ", kElasticSteps, steps,
                     run.folder().path("ck"));
}

TEST(ElasticProgram, EightFourAndEightRanksUnderMpirunKeepTheBits) {
  const TinyRun run;
  int steps = 0;
  for (const int ranks : {8, 4, 8}) {
    steps += 2;
    const Outcome outcome = job(run, ranks, up_to(run, steps));
    EXPECT_EQ(outcome.status, exit_status::kOk) << outcome.errors;
    EXPECT_THAT(outcome.out, Not(HasSubstr("take part")));
  }
  EXPECT_EQ(bits(run).back(), undisturbed_bits().back());
}

// Losses too: a start ends behind its step, and no final line comes between.
TEST(ElasticProgram, RanksThatCameAnewGoOnWithTheSameLosses) {
  const TinyRun run;
  const std::string values = up_to(run, 6) + "run.stop_after=0.00001 ";
  for (const int ranks : {8, 3, 4}) {
    const Outcome outcome = alone(run, fmt::format("{} --local-ranks {}", values, ranks));
    EXPECT_EQ(outcome.status, exit_status::kOk) << outcome.errors;
    EXPECT_THAT(outcome.out, HasSubstr("ended by run.stop_after"));
  }
  const Outcome last = alone(run, up_to(run, 6) + "--local-ranks 6");
  EXPECT_EQ(last.status, exit_status::kOk) << last.errors;
  EXPECT_THAT(last.out, HasSubstr("run.elastic: 6 ranks came, and the first 4 take part, the most "
                                  "that are a power of two"));
  EXPECT_EQ(bits(run), undisturbed_bits());
}

TEST(ElasticProgram, ThreeAndSixRanksOfMpirunAreTwoAndFour) {
  const nlohmann::json expected = undisturbed_bits();
  for (const int came : {3, 6}) {
    const TinyRun run;
    const Outcome outcome = job(run, came, kElasticSteps + "run.steps=6");
    EXPECT_EQ(outcome.status, exit_status::kOk) << outcome.errors;
    EXPECT_THAT(
        outcome.out,
        AllOf(HasSubstr(fmt::format("run.elastic: {} ranks came, and the first {} take part", came,
                                    came == 3 ? 2 : 4)),
              HasSubstr("as planned, to the byte")));
    EXPECT_EQ(bits(run), expected);
  }
}

// Its words would come last, of a rank that is not to blame. Rank 1 stops when its update begins:
// its last gradients may be on their way.
TEST(ElasticProgram, ARankThatTakesNoPartTellsOfNoFault) {
  const TinyRun run;
  const Outcome outcome = shell(
      run,
      fmt::format("env ZERO_ALLOW_FAULTS=1 {} -np 3 {} --config {}{}run.steps=6 "
                  R"('run.faults=[{{"kind": "stop", "rank": 1, "step": 3, "phase": "update"}}]')",
                  kJob, kTrain, run.config(), kElasticSteps));
  EXPECT_NE(outcome.status, exit_status::kOk);
  EXPECT_THAT(outcome.errors,
              AllOf(ContainsRegex("rank 1 (has not entered|is in) [a-z_]+[(]"),
                    HasSubstr("its process is stopped"), Not(HasSubstr("[rank 2]"))));
}

/// Each rank's status, of ranks that torchrun's variables number.
TEST(ElasticProgram, RanksByVariablesThatHaveNoPlaceEndWellAtOnce) {
  const TinyRun run;
  const int port = 25000 + static_cast<int>(::getpid() % 3000);
  std::string script;
  for (int rank = 2; rank >= 0; --rank) {
    script += fmt::format(
        "(env RANK={0} LOCAL_RANK={0} WORLD_SIZE=3 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={1} {2} --config {3}{4}run.steps=6; echo status {0}: $?) &\n",
        rank, port, kTrain, run.config(), kElasticSteps);
  }
  run.folder().write("job.sh", script + "wait\n");
  const Outcome outcome = shell(run, "bash " + run.folder().path("job.sh"));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(outcome.out, HasSubstr(fmt::format("status {}: 0\n", rank))) << outcome.errors;
  }
  EXPECT_THAT(outcome.out, HasSubstr("run.elastic: 3 ranks came, and the first 2 take part"));
  EXPECT_EQ(bits(run), undisturbed_bits());
}

TEST(ElasticProgram, APlanIsOfTheRanksThatWouldTakePart) {
  const TinyRun run;
  const Outcome plan = alone(run, kElasticSteps + "--plan --json --world 6");
  EXPECT_EQ(plan.status, exit_status::kOk) << plan.errors;
  EXPECT_EQ(nlohmann::json::parse(plan.out)["world"], 4);
}

TEST(ElasticProgram, KeysThatTieItToItsRanksNeverWork) {
  const TinyRun run;
  const Outcome outcome = alone(run,
                                "--set run.elastic=true gradient_accumulation_steps=3 "
                                "--local-ranks 2");
  EXPECT_EQ(outcome.status, exit_status::kConfiguration);
  ASSERT_EQ(outcome.complaints().size(), 1U) << outcome.errors;
  EXPECT_THAT(outcome.complaints().front(), HasSubstr("but gradient_accumulation_steps is 3"));
}

TEST(ElasticProgram, ARestartIsToldInTheLogWithItsCause) {
  const TinyRun run;
  EXPECT_EQ(alone(run, up_to(run, 2)).status, exit_status::kOk);
  const Outcome again =
      shell(run, "env 'ZERO_RESTART=1: status 137 after 12 s\t" + run.folder().path("ck") + "' " +
                     kTrain + " --config " + run.config() + up_to(run, 4));
  EXPECT_EQ(again.status, exit_status::kOk) << again.errors;
  EXPECT_THAT(again.out, HasSubstr("restart 1: status 137 after 12 s\n"));
  int told = 0;
  for (const nlohmann::json& line : run.log()) {
    if (line.value("restart", "") == "restart 1: status 137 after 12 s") ++told;
  }
  EXPECT_EQ(told, 1);
  // A restart before the first save begins the log, which a later start knows for the run's.
  const TinyRun first;
  EXPECT_EQ(shell(first, "env 'ZERO_RESTART=1:x\t" + first.folder().path("ck") + "' " + kTrain +
                             " --config " + first.config() + up_to(first, 2))
                .status,
            exit_status::kOk);
  EXPECT_EQ(first.log().front().value("restart", ""), "restart 1:x");
  // Of that run: one in another folder, which has the variable from somewhere, is a first start.
  const TinyRun other;
  EXPECT_THAT(shell(other, "env 'ZERO_RESTART=1:x\t" + first.folder().path("ck") + "' " + kTrain +
                               " --config " + other.config() + up_to(other, 1))
                  .out,
              Not(HasSubstr("restart")));
  const Outcome later = alone(first, up_to(first, 4));
  EXPECT_EQ(later.status, exit_status::kOk) << later.errors;
}

// Four ranks, of which one is killed; three come to the next start, and two of them take part.
TEST(ElasticProgram, RetryGoesOnWithFewerRanksAfterAKill) {
  const TinyRun run;
  const std::string folder = run.folder().path("ck");
  const std::string values = " --config " + run.config() + kElasticSteps +
                             "run.checkpoint.folder=" + folder + " run.checkpoint.every_steps=2 ";
  run.folder().write("job.sh", fmt::format(R"(
if [ ! -e {0}.second ]; then
  : >{0}.second
  {1} -np 4 {2} {3} run.steps=1000000 & job=$!
  until ls {0}/step_*[0-9]/COMMIT >/dev/null 2>&1; do kill -0 $job || exit 9; sleep 0.05; done
  kill -KILL $(pgrep -P $job | head -n 1)
  wait $job
  exit $?
fi
last=$(ls {0} | sed -n 's/^step_0*\([0-9]*\)$/\1/p' | sort -n | tail -n 1)
echo $((last + 3)) >{0}.steps
exec {1} -np 3 {2} {3} run.steps=$((last + 3))
)",
                                           folder, kJob, kTrain, values));
  const Outcome outcome = shell(run, std::string(ZERO_RETRY) + " --wait 0 --checkpoints " + folder +
                                         " -- bash " + run.folder().path("job.sh"));
  EXPECT_EQ(outcome.status, exit_status::kOk) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("starting again in 0 s"));
  EXPECT_THAT(
      outcome.out,
      AllOf(::testing::ContainsRegex("restart 1: status [0-9]+ after [0-9]+ s"),
            HasSubstr("3 ranks came, and the first 2 take part"), HasSubstr("resumed from ")));
  const TinyRun whole;
  const int steps = std::stoi(run.folder().read("ck.steps"));
  EXPECT_EQ(alone(whole, fmt::format("{}run.steps={}", kElasticSteps, steps)).status,
            exit_status::kOk);
  EXPECT_EQ(bits(run).back(), bits(whole).back());
}

// The launchers' word for a start that fails again: no restart helps.
TEST(ElasticProgram, RetryLeavesAConfigurationAloneThatNeverWillWork) {
  const TinyRun run;
  const Outcome outcome =
      shell(run, std::string(ZERO_RETRY) + " --wait 0 --checkpoints x -- " + kJob + "-np 2 " +
                     kTrain + " --config " + run.config() + " --set run.stepz=3");
  EXPECT_EQ(outcome.status, exit_status::kConfiguration) << outcome.errors;
  EXPECT_THAT(
      outcome.errors,
      HasSubstr(
          "will fail again: the command line or the configuration is wrong; not started again"));
  EXPECT_EQ(outcome.complaints().size(), 1U) << outcome.errors;
}

}  // namespace
}  // namespace zero
