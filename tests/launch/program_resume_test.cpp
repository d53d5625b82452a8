// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// zero_train cut by signals, at moments of its own and at seeded ones, and started again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <random>

#include "tests/launch/program.h"
#include "tests/support/long_tests.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using namespace testing;

/// Steps, losses, norms and the end of a run's log.
Json results(const TinyRun& run) {
  Json all = Json::array();
  for (const Json& line : run.log()) {
    for (const char* key : {"step", "loss", "grad_norm", "state_hash", "validation_loss"}) {
      if (line.contains(key)) all.push_back({key, line[key]});
    }
  }
  return all;
}

std::string saving(const TinyRun& run, int steps) {
  return " --set train_batch_size=16 run.steps=" + std::to_string(steps) +
         " run.checkpoint.folder=" + run.folder().path("ck") + " ";
}

/// `start` with the run's configuration: the way in which `disturbed` finds its ranks.
std::string configured(const TinyRun& run, const std::string& start) {
  return start + " --config " + run.config();
}

Json uncut(int steps) {
  const TinyRun run;
  const Outcome outcome =
      shell(run, configured(run, kTrain) +
                     " --set train_batch_size=16 run.steps=" + std::to_string(steps));
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  return results(run);
}

/// A shell has what it starts in the background ignore SIGINT; nohup may have started the tests.
const std::string kHearing = "env --default-signal=INT,HUP ";

/// Runs `start` in the background, and `disturb`, which knows it as $job, once its log has `lines`
/// lines. Waits until no rank is left.
Outcome disturbed(const TinyRun& run, const std::string& start, int lines,
                  const std::string& disturb) {
  run.folder().write(
      "script.sh", kHearing + start + " & job=$!\nuntil [ \"$(wc -l <" +
                       run.folder().path("run.log") + " 2>/dev/null || echo 0)\" -ge " +
                       std::to_string(lines) + " ]; do kill -0 $job || break; sleep 0.05; done\n" +
                       disturb +
                       "\nwait $job; status=$?\nwhile pgrep -f '^[^ ]*zero_train --config " +
                       run.config() + "' >/dev/null; do sleep 0.05; done\nexit $status");
  return shell(run, "bash " + run.folder().path("script.sh"));
}

// mpirun waits this long before it passes SIGTERM on, and again before it kills the ranks.
const std::string kPatientJob = kJob + "--mca odls_base_sigkill_timeout 2 ";

/// The number in the last line of the log that has `key`.
int last_number(const TinyRun& run, const char* key) {
  int number = -1;
  for (const Json& line : run.log()) number = line.value(key, number);
  return number;
}

TEST(Resume, ASignalSavesAndEndsInGoodOrder) {
  struct Case {
    std::string start;
    std::string signal;
    int status;  // of mpirun, which passes SIGINT on as SIGTERM, 1
  };
  for (const Case& each : {Case{kTrain, "TERM", 143}, Case{kTrain + " --local-ranks 2", "INT", 130},
                           Case{kPatientJob + "-np 2 " + kTrain, "TERM", 1},
                           Case{kPatientJob + "-np 2 " + kTrain, "INT", 1}}) {
    const TinyRun run;
    const Outcome cut = disturbed(run, configured(run, each.start) + saving(run, 1000000), 5,
                                  "kill -" + each.signal + " $job");
    EXPECT_EQ(cut.status, each.status) << each.start << each.signal;
    EXPECT_THAT(cut.complaints(), ::testing::IsEmpty()) << cut.out;
    const int done = last_number(run, "after_step");
    ASSERT_GE(done, 5) << cut.out << cut.errors;
    EXPECT_THAT(cut.out, AllOf(ContainsRegex("SIG[A-Z]+: saving a checkpoint after this step"),
                               ContainsRegex("ended by SIG[A-Z]+ after step [0-9]+ of 1000000"),
                               HasSubstr("the newest checkpoint is of step " +
                                         std::to_string(done) + ": started again")));
    const Outcome again = job(run, 2, saving(run, done + 3));
    EXPECT_EQ(again.status, 0) << again.errors;
    EXPECT_THAT(again.out, AllOf(ContainsRegex("resumed from .*: [0-9]+ of [0-9]+ steps are done"),
                                 HasSubstr("as planned, to the byte")));
    EXPECT_TRUE(results(run) == uncut(done + 3)) << each.start << each.signal;
  }
}

TEST(Resume, SIGINTBehindAnotherSignalEndsTheRunAtOnce) {
  const TinyRun run;
  const Outcome outcome =
      disturbed(run, configured(run, kTrain) + saving(run, 1000000) + "--set run.stop_after=60", 2,
                "kill -STOP $job; kill -TERM $job; kill -CONT $job; sleep 0.3; "
                "kill -INT $job 2>/dev/null; true");
  EXPECT_THAT(outcome.status, ::testing::AnyOf(130, 143));  // 143: the save was faster
  EXPECT_THAT(outcome.out, ::testing::AnyOf(HasSubstr("; nothing is kept: there is no checkpoint"),
                                            HasSubstr("; the newest checkpoint")));
}

// Some batch systems announce the end of a job with it, before SIGTERM.
TEST(Resume, SIGUSR2EndsTheRunAsSIGTERMDoes) {
  const TinyRun run;
  const Outcome outcome =
      disturbed(run, configured(run, kTrain) + saving(run, 1000000), 2, "kill -USR2 $job");
  EXPECT_EQ(outcome.status, 143) << outcome.errors;
  EXPECT_THAT(outcome.out, HasSubstr("saved step "));
}

TEST(Resume, IgnoredSignalsStayIgnored) {
  const TinyRun hung_up;
  const Outcome nohup =
      disturbed(hung_up, configured(hung_up, "nohup " + kTrain) + saving(hung_up, 1000000), 2,
                "kill -HUP $job; sleep 0.5; kill -INT $job");
  EXPECT_EQ(nohup.status, 130) << nohup.errors;
  const TinyRun run;
  const Outcome background = disturbed(
      run, configured(run, "env --ignore-signal=INT,USR2 " + kTrain) + saving(run, 1000000), 2,
      "kill -INT $job; kill -USR2 $job; sleep 0.5; kill -HUP $job");
  EXPECT_EQ(background.status, 143) << background.errors;
  for (const Outcome& outcome : {nohup, background}) {
    EXPECT_THAT(outcome.out, HasSubstr("; from now on SIGINT (Ctrl-C) ends at once"));
  }
}

TEST(Resume, SIGUSR1SavesAndGoesOn) {
  const TinyRun run;
  const Outcome outcome = disturbed(
      run,
      configured(run, kPatientJob + "-np 3 " + kTrain) + saving(run, 300) + "train_batch_size=12",
      3, "kill -USR1 $job");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  int saves = 0;
  for (const Json& line : run.log()) saves += line.contains("saved_step") ? 1 : 0;
  EXPECT_EQ(saves, 2) << "the one asked for, which every rank heard of, and the last step's";
  EXPECT_THAT(outcome.out, HasSubstr("SIGUSR1: saving a checkpoint after this step"));
  const TinyRun none;
  const Outcome ignored =
      disturbed(none, configured(none, kTrain) + " --set run.steps=3000", 3, "kill -USR1 $job");
  EXPECT_EQ(ignored.status, 0);
  EXPECT_THAT(ignored.out, HasSubstr("SIGUSR1: no run.checkpoint.folder; nothing is saved"));
}

TEST(Resume, SIGUSR1DuringTheStartSavesAfterOneOfTheFirstSteps) {
  const TinyRun run;
  // As soon as the program holds the signal, far before the first step.
  const Outcome outcome =
      disturbed(run, configured(run, kTrain) + saving(run, 300), 0,
                "until grep -qs zero_train /proc/$job/comm && grep -q "
                "'^SigBlk:.*[2367abef]..$' /proc/$job/status; do :; done; kill -USR1 $job");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.out, HasSubstr("SIGUSR1: saving a checkpoint after this step"));
  int saves = 0;
  for (const Json& line : run.log()) saves += line.contains("saved_step") ? 1 : 0;
  EXPECT_EQ(saves, 2) << "the one asked for and the last step's";
}

/// What ends a job under mpirun, which a script knows as $job.
constexpr std::array kCuts{
    "kill -KILL $(pgrep -P $job | shuf -n 1 --random-source=<(yes)) 2>/dev/null",
    "kill -KILL $(pgrep -P $job) 2>/dev/null",
    "kill -KILL $job",
    "kill -TERM $job",
    "kill -USR1 $job; sleep 0.05; kill -KILL $(pgrep -P $job | head -n 1) 2>/dev/null",
    "kill -INT $job"};

TEST(Resume, CutAnywhereGivesTheBitsOfAnUncutRun) {
  constexpr int kSteps = 120;
  const int cuts = long_tests() ? 200 : 5;
  const int ranks = long_tests() ? 8 : 2;
  const Json expected = uncut(kSteps);
  std::mt19937 random(16);
  auto run = std::make_unique<TinyRun>();
  int finished = 0;
  const auto check = [&](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_TRUE(results(*run) == expected) << run->folder().read("run.log");
    run = std::make_unique<TinyRun>();
    ++finished;
  };
  const auto start = [&] {
    return configured(*run, kPatientJob + "-np " + std::to_string(ranks) + " " + kTrain) +
           saving(*run, kSteps) + "run.checkpoint.every_steps=2 run.checkpoint.keep_last=2";
  };
  for (int cut = 0; cut < cuts && !HasFailure(); ++cut) {
    // From before the first step, over loading and saving, to the end.
    const double delay = std::uniform_real_distribution<>(0.2, long_tests() ? 6.0 : 2.5)(random);
    const char* const how = kCuts[std::uniform_int_distribution<std::size_t>(0, 5)(random)];
    const Outcome outcome =
        disturbed(*run, start(), 0, "sleep " + std::to_string(delay) + "; " + how);
    if (outcome.status == 0) check(outcome);
    if (cut % 20 == 19) {
      std::printf("%d cuts, %d runs finished\n", cut + 1, finished);
      std::fflush(stdout);
    }
  }
  check(shell(*run, start()));
  std::printf("%d cuts of %d ranks, %d runs finished\n", cuts, ranks, finished);
}

TEST(Resume, RefusalsEndAllRanksWithOneMessage) {
  const TinyRun run;
  ASSERT_EQ(shell(run, configured(run, kTrain) + saving(run, 2)).status, 0);
  const auto complaint = [&](const std::string& values, int status = exit_status::kFault) {
    const Outcome outcome = job(run, 2, saving(run, 3) + values);
    EXPECT_EQ(outcome.status, status) << values;
    const auto complaints = outcome.complaints();
    EXPECT_EQ(complaints.size(), 1U) << outcome.errors;
    return complaints.empty() ? "" : complaints[0];
  };
  EXPECT_THAT(complaint("run.seed=8", exit_status::kConfiguration),
              HasSubstr("run.seed is 7 in the checkpoint and 8"));
  EXPECT_THAT(complaint("run.resume=" + run.folder().path("none")),
              HasSubstr("none is no folder; give that of a checkpoint"));
  for (const char* below : {"", "/none/ck"}) {
    EXPECT_THAT(complaint("run.checkpoint.folder=" + run.config() + below),
                ContainsRegex("run.checkpoint.folder: .*c.json is not a folder"));
  }
  if (::geteuid() != 0) {  // who may write everywhere
    EXPECT_THAT(complaint("run.checkpoint.folder=/none/ck"),
                HasSubstr("run.checkpoint.folder: /none/ck cannot be made: /: Permission denied"));
  }
  const std::string step = run.folder().path("ck/step_00000002");
  for (const std::string& init : {step, run.folder().path("ck")}) {
    EXPECT_THAT(complaint("run.init=" + init),
                HasSubstr("give " + step + "/weights to begin with its weights"));
  }
  EXPECT_THAT(complaint("run.resume=never"), HasSubstr("from which a later start would go on"));
}

TEST(Resume, FoldersAboveTheCheckpointsAreMade) {
  const TinyRun run;
  const Outcome outcome = shell(run, configured(run, kTrain) + saving(run, 2) +
                                         "run.checkpoint.folder=" + run.folder().path("a/b/ck"));
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_TRUE(std::filesystem::exists(run.folder().path("a/b/ck/step_00000002/COMMIT")));
}

TEST(Resume, AFinishedRunHasNoStepToTrace) {
  const TinyRun run;
  ASSERT_EQ(shell(run, configured(run, kTrain) + saving(run, 3)).status, 0);
  const Outcome again = shell(run, configured(run, kTrain) + saving(run, 4) + " --trace " +
                                       run.folder().path("trace.json"));
  EXPECT_EQ(again.status, 0) << again.errors;
  EXPECT_THAT(again.out, HasSubstr("no step was left to trace: run.trace is empty"));
  const Outcome more = shell(run, configured(run, kTrain) + saving(run, 7) + " --trace " +
                                      run.folder().path("trace.json"));
  EXPECT_THAT(more.out, HasSubstr("trace of steps 6 to 7: "));
}

TEST(ZeroCkpt, AnswersWithItsStatus) {
  const TinyRun run;
  ASSERT_EQ(shell(run, configured(run, kTrain) + saving(run, 2)).status, 0);
  const std::string folder = run.folder().path("ck");
  const std::string step = folder + "/step_00000002";
  const auto tool = [&](const std::string& arguments) {
    return shell(run, std::string(ZERO_CKPT) + " " + arguments);
  };
  EXPECT_EQ(Json::parse(tool("ls --json " + folder).out)[0]["step"], 2);
  EXPECT_THAT(tool("ls " + folder).out, HasSubstr(step));
  EXPECT_EQ(tool("verify " + folder).status, 0);
  EXPECT_THAT(tool("show " + folder).out, AllOf(HasSubstr("wte.weight"), HasSubstr("run.seed")));
  EXPECT_EQ(tool("diff " + folder + " " + step).status, 0);
  EXPECT_EQ(tool("export --dtype bf16 " + folder + " " + run.folder().path("hf")).status, 0);
  EXPECT_EQ(shell(run, kTrain + " --config " + run.config() +
                           " --set train_batch_size=16 run.init=" + run.folder().path("hf"))
                .status,
            0);
  EXPECT_EQ(tool("prune --keep-last 1 " + folder).out, "nothing to remove\n");
  run.folder().write("ck/step_00000002/weights/config.json", "{}");
  const Outcome damaged = tool("verify " + step);
  EXPECT_EQ(damaged.status, 1);
  EXPECT_THAT(damaged.out, AllOf(HasSubstr("damaged: "), HasSubstr("config.json")));
  EXPECT_THAT(tool("prune --keep-last 1 --keep-every 0 " + folder).errors,
              HasSubstr("--keep-every: found 0, expected a whole number from 1"));
  for (const std::string& trouble :
       {std::string(), "ls " + run.folder().path("none"), "show " + folder,
        std::string("prune ") + folder, "export --dtype fp16 " + folder + " x",
        std::string("frobnicate")}) {
    const Outcome outcome = tool(trouble);
    EXPECT_EQ(outcome.status, 2) << trouble;
    EXPECT_THAT(outcome.errors, ::testing::StartsWith("zero_ckpt: ")) << trouble;
  }
  for (const std::string& arguments : {"ls " + folder, std::string("--help")}) {
    const Outcome lost =
        shell(run, std::string("sh -c '") + ZERO_CKPT + " " + arguments + " >/dev/full'");
    EXPECT_EQ(lost.status, 2) << arguments;
    EXPECT_EQ(lost.errors, "zero_ckpt: standard output: cannot write: No space left on device\n");
  }
  EXPECT_THAT(tool("ls --jsno " + folder).errors, HasSubstr("(--jsno: did you mean --json?)"));
  EXPECT_THAT(tool("verfy " + folder).errors, HasSubstr("(verfy: did you mean verify?)"));
  EXPECT_THAT(tool("list " + folder).errors, HasSubstr("(list: did you mean ls?)"));
  EXPECT_THAT(tool("--help").out, AllOf(HasSubstr("verify"), HasSubstr("Status: 0; 1 if")));
}

}  // namespace
}  // namespace zero
