// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "tests/launch/program.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;

/// A job that no launcher of MPI started: processes that know of each other by variables alone,
/// with the first rank's status. `variables`: more of them, each with a space after it.
Outcome by_variables(const TinyRun& run, int ranks, const std::string& arguments,
                     const std::string& variables = "") {
  const int port = 20000 + static_cast<int>(::getpid() % 9000);
  const std::string common = variables + "WORLD_SIZE=" + std::to_string(ranks) +
                             " LOCAL_WORLD_SIZE=" + std::to_string(ranks) +
                             " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(port) + " ";
  std::string script;
  for (int rank = ranks - 1; rank >= 0; --rank) {
    const std::string number = std::to_string(rank);
    script += "RANK=" + number + " LOCAL_RANK=" + number + " " + common + kTrain + " --config " +
              run.config() + " " + arguments + (rank > 0 ? " &\n" : "\n");
  }
  run.folder().write("job.sh", script + "status=$?; wait; exit $status");
  return shell(run, "bash " + run.folder().path("job.sh"));
}

TEST(Program, RanksNeedNoMpi) {
  const TinyRun run;
  const Outcome alone_ends = alone(run, "--set train_batch_size=8");
  EXPECT_EQ(alone_ends.status, 0) << alone_ends.errors;
  const auto hash = run.log().back()["state_hash"];
  const Outcome threads = alone(run, "--set train_batch_size=8 --local-ranks 4");
  EXPECT_EQ(threads.status, 0) << threads.errors;
  EXPECT_THAT(threads.out, ::testing::ContainsRegex("allocating [0-9.]+ [KM]iB on a rank, and "
                                                    "initialising the model states\n"));
  EXPECT_THAT(threads.out, AllOf(HasSubstr("step 3/3"), HasSubstr("as planned, to the byte")));
  EXPECT_EQ(run.log().size(), 4U);
  EXPECT_EQ(run.log().back()["state_hash"], hash);
  const Outcome processes = by_variables(run, 2, "--set train_batch_size=8");
  EXPECT_EQ(processes.status, 0) << processes.errors;
  EXPECT_THAT(processes.out, AllOf(HasSubstr("step 3/3"), HasSubstr("as planned, to the byte")));
  EXPECT_EQ(run.log().back()["state_hash"], hash);
  const Outcome mesh = by_variables(run, 4, "--set train_batch_size=8 --set mesh.tensor=2");
  EXPECT_EQ(mesh.status, 0) << mesh.errors;
  EXPECT_THAT(mesh.out, HasSubstr("as planned, to the byte"));
}

/// Writes a copy of zero_train with another build id. False if it has none.
bool write_other_build(const std::string& path) {
  // A note of 20 bytes, of type 3, by "GNU".
  constexpr std::string_view kNote("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);
  std::ostringstream content;
  content << std::ifstream(kTrain, std::ios::binary).rdbuf();
  std::string bytes = content.str();
  const std::size_t at = bytes.find(kNote);
  if (at == std::string::npos) return false;
  bytes[at + kNote.size()] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return true;
}

TEST(Program, AnotherBuildOnARankIsNamedOnce) {
  const TinyRun run;
  const std::string other = run.folder().path("other");
  if (!write_other_build(other)) GTEST_SKIP() << "the linker writes no build ids";
  const auto rank = [&](int number, const std::string& program) {
    return fmt::format(
        "RANK={0} LOCAL_RANK={0} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={1} {2} --config {3}",
        number, 29500 + ::getpid() % 400, program, run.config());
  };
  run.folder().write("job.sh",
                     rank(1, other) + " &\n" + rank(0, kTrain) + "\nstatus=$?; wait; exit $status");
  const Outcome outcome = shell(run, "bash " + run.folder().path("job.sh"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.complaints(),
              ::testing::ElementsAre(::testing::ContainsRegex(
                  "zero_train: rank 1 on host [^ ]+ runs zero [^ ]+ .build [0-9a-f]+., rank 0 on "
                  "host [^ ]+ runs zero .*: copy it to all hosts")));
  EXPECT_FALSE(std::filesystem::exists(run.folder().path("run.log")));
}

// As torchrun and srun start the second of two hosts.
TEST(Program, RanksOfCpusOnSeveralHostsAreToldWhatTheyLack) {
  const TinyRun run;
  const std::string torchrun =
      "RANK=1 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=192.0.2.1 MASTER_PORT=29400";
  const std::string srun =
      "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_NNODES=2 SLURM_NODELIST=n[1-2] "
      "SLURM_JOB_ID=7 SLURM_STEP_ID=0";
  const auto told = [&](const std::string& launcher, int status, const std::string& by_store) {
    const Outcome outcome = shell(run, "env " + launcher + " " + kTrain + " --config " +
                                           run.config() + " --set run.device=cpu");
    EXPECT_EQ(outcome.status, mpi::can_form_job() ? status : 1);
    EXPECT_THAT(outcome.complaints(),
                ::testing::ElementsAre(HasSubstr(
                    mpi::can_form_job() ? by_store
                                        : "[rank 1] the ranks are on several hosts and compute on "
                                          "the CPU, and between hosts CPUs talk through MPI")));
  };
  told(torchrun, 1, "this job has no secret; ranks on several hosts need one");
  told(srun, exit_status::kConfiguration, "this job has no secret, which they need to meet there");
}

// Two hosts are two names of this one.
TEST(Program, RanksOfCpusOnSeveralHostsFormAJobOfMpi) {
  if (!mpi::can_form_job()) GTEST_SKIP() << "this build has no PMIx";
  const TinyRun run;
  if (shell(run, "unshare --uts true").status != 0) GTEST_SKIP() << "needs the right to name hosts";
  EXPECT_EQ(alone(run, "--set train_batch_size=8").status, 0);
  const auto hash = run.log().back()["state_hash"];
  std::string script =
      "export ZERO_JOB_SECRET=0123456789abcdef0123 WORLD_SIZE=2 LOCAL_RANK=0 "
      "LOCAL_WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
      std::to_string(20000 + ::getpid() % 9000) + "\n";
  for (const std::string rank : {"1", "0"}) {
    script += "RANK=" + rank + " unshare --uts sh -c 'hostname zero-host-" + rank + " && exec " +
              kTrain + " --config " + run.config() + " --set train_batch_size=8' " +
              (rank == "1" ? "&\n" : "\n");
  }
  run.folder().write("job.sh", script + "status=$?; wait; exit $status");
  const Outcome outcome = shell(run, "bash " + run.folder().path("job.sh"));
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("MPI messages"), HasSubstr("as planned, to the byte")));
  EXPECT_EQ(run.log().back()["state_hash"], hash);
}

TEST(Program, AJobOfSlurmWithoutSrunIsToldSoAtOnceAndMayBePlanned) {
  const TinyRun run;
  const std::string script = "env SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_JOB_ID=7 " +
                             kTrain + " --config " + run.config() + " --set train_batch_size=8 ";
  const Outcome outcome = shell(run, script);
  EXPECT_EQ(outcome.status, exit_status::kConfiguration);
  EXPECT_THAT(outcome.complaints(), ::testing::ElementsAre(HasSubstr("srun -n 4")));
  EXPECT_THAT(shell(run, script + "--plan").out, HasSubstr("4 rank"));
  EXPECT_EQ(shell(run, script + "--local-ranks 1").status, 0);
}

// Another user of the folder could not replace them.
TEST(Program, ThatAllRanksRefuseToBeginLeavesNoFlightFiles) {
  const TinyRun run;
  for (const char* const wrong : {"data.train=/nowhere", "run.memory_limit=64KiB"}) {
    SCOPED_TRACE(wrong);
    EXPECT_NE(alone(run, fmt::format("--local-ranks 2 --set {}", wrong)).status, 0);
    EXPECT_FALSE(std::filesystem::exists(run.folder().path("run.log.flight")));
  }
}

TEST(Program, FitsItsMemoryLimitOrEndsBeforeItStarts) {
  const TinyRun run;
  const std::string kept = "--local-ranks 2 --set model.layers=4 --set run.memory_limit=";
  const Outcome none = alone(run, kept + "64KiB");
  EXPECT_EQ(none.status, exit_status::kConfiguration);
  ASSERT_EQ(none.complaints().size(), 1U) << none.errors;
  EXPECT_THAT(none.complaints().front(),
              AllOf(HasSubstr("run.memory_limit is 64.00 KiB"), HasSubstr("short by ")));
  EXPECT_THAT(none.out, Not(HasSubstr("allocating")));
  const Outcome enough = alone(run, kept + "1GiB");
  EXPECT_EQ(enough.status, 0) << enough.errors;
  const nlohmann::json all = run.log().back();
  std::int64_t bytes = 0;
  for (const auto& [name, each] : all["memory"].items()) bytes += each["planned"].get<int>();
  const std::string automatic = " --set activation_checkpointing.recompute=auto";
  const Outcome fitted = alone(run, kept + std::to_string(bytes - 1) + automatic);
  EXPECT_EQ(fitted.status, 0) << fitted.errors;
  EXPECT_THAT(fitted.out, AllOf(HasSubstr("backward computes again: block"),
                                HasSubstr("memory is as planned, to the byte")));
  EXPECT_EQ(run.log().back()["state_hash"], all["state_hash"]);
  const Outcome plan = alone(run, "--world 2 --plan --set model.layers=4 --set run.memory_limit=" +
                                      std::to_string(bytes - 1) + automatic +
                                      " --set activation_checkpointing.partition_activations=true");
  EXPECT_THAT(plan.out, AllOf(HasSubstr("backward computes again: block"),
                              HasSubstr("partition_activations has no effect: there is one")));
}

TEST(Program, RanksWithASecretMeetWithoutTellingIt) {
  const TinyRun run;
  const std::string secret = "0123456789abcdef of a test";
  for (const std::string arguments : {"", "--print-config"}) {
    const Outcome outcome = by_variables(run, 2, arguments, "ZERO_JOB_SECRET='" + secret + "' ");
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    EXPECT_THAT(outcome.out + outcome.errors, Not(HasSubstr(secret)));
  }
  EXPECT_EQ(run.log().size(), 4U);
  EXPECT_THAT(run.folder().read("run.log"), Not(HasSubstr(secret)));
  const Outcome weak = by_variables(run, 2, "", "ZERO_JOB_SECRET=short ");
  EXPECT_NE(weak.status, 0);
  EXPECT_THAT(weak.errors, HasSubstr("the job's secret has 5 bytes, expected 16 to 4096"));
}

TEST(Program, WithoutMpiMistakesAreNamedOnceToo) {
  const TinyRun run;
  for (const Outcome& outcome : {alone(run, "--local-ranks 3 --set run.stepz=3"),
                                 by_variables(run, 3, "--set run.stepz=3")}) {
    EXPECT_EQ(outcome.status, exit_status::kConfiguration);
    ASSERT_EQ(outcome.complaints().size(), 1U) << outcome.errors;
    EXPECT_THAT(outcome.complaints()[0], HasSubstr("did you mean \"run.steps\""));
  }
  const Outcome half = shell(run, "env RANK=0 " + kTrain + " --config " + run.config());
  EXPECT_EQ(half.status, exit_status::kConfiguration);
  EXPECT_THAT(half.complaints(),
              ::testing::ElementsAre(HasSubstr("WORLD_SIZE is not set, though RANK is")));
  // As in a pod that is alone in its job: operators number pods, and LOCAL_RANK is no word of
  // theirs.
  const Outcome pod =
      shell(run, "env RANK=0 WORLD_SIZE=1 " + kTrain + " --local-ranks 2 --config " + run.config());
  EXPECT_EQ(pod.status, 0) << pod.errors;
  const Outcome both = job(run, 2, "--local-ranks 2");
  EXPECT_NE(both.status, 0);
  EXPECT_THAT(both.errors, HasSubstr("--local-ranks 2 makes all ranks in one process, but mpirun "
                                     "started 2 of them"));
  EXPECT_THAT(shell(run, "env RANK=0 " + kTrain + " --help").out, HasSubstr("--local-ranks"));
}

TEST(Program, NeedsNoLog) {
  const TinyRun run;
  const Outcome outcome = alone(run, "--set run.log=null run.steps=2");
  EXPECT_EQ(0, outcome.status) << outcome.errors;
  EXPECT_THAT(outcome.out, HasSubstr("log: none"));
  EXPECT_FALSE(std::filesystem::exists(run.folder().path("run.log")));
}

TEST(Program, AFileBeyondTheLimitOfSizesIsNamed) {
  const TinyRun run;
  const Outcome outcome =
      shell(run, "bash -c 'ulimit -f 1024; " + kTrain + " --config " + run.config() +
                     " --set run.steps=1 model.width=256 run.save_weights=w.safetensors'");
  EXPECT_EQ(1, outcome.status) << outcome.errors;
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("w.safetensors"), HasSubstr("File too large")));
}

TEST(Program, EscapesOfAFileDoNotReachTheTerminal) {
  const TinyRun run;
  const Outcome outcome = alone(run, "--set 'run.nonsense\x1b[31m=1'");
  EXPECT_EQ(outcome.status, exit_status::kConfiguration) << outcome.errors;
  EXPECT_THAT(outcome.errors, AllOf(HasSubstr("run.nonsense?[31m"), Not(HasSubstr("\x1b"))));
}

TEST(Program, FlagsThatWouldBeIgnoredAreRefused) {
  const TinyRun run;
  const std::vector<std::pair<std::string, std::string>> mistakes{
      {"--json", "--json is given without --plan or --simulate; add one of them"},
      {"--labels", "--labels is given without --plan; add --plan"},
      {"--schedule", "--schedule is given without --plan; add --plan"},
      {"--print-config --json", "--json is given without --plan or --simulate; add one of them"},
      {"--world 4",
       "--world 4 is given without --plan or --print-config; add one of them, or, to "
       "train with 4 ranks, start zero_train with mpirun -np 4 or --local-ranks 4"},
      {"--simulate c.json --world 4",
       "--simulate is given with --plan, --print-config, --profile, --memory-trace, --world or "
       "--local-ranks; give it without them; the number of ranks is ranks=N in --simulate"},
      {"--plan --print-config", "--plan and --print-config are both given; give one of them"}};
  for (const auto& [arguments, complaint] : mistakes) {
    const Outcome outcome = alone(run, arguments);
    EXPECT_EQ(outcome.status, exit_status::kConfiguration) << arguments;
    EXPECT_THAT(outcome.complaints(),
                ::testing::ElementsAre("zero_train: " + complaint + "; see zero_train --help"));
  }
}

#ifdef ZERO_MLP
TEST(Examples, SayHowTheyAreUsed) {
  const TinyRun run;
  for (const std::string program : {ZERO_MLP, ZERO_TENSOR_MLP " 1"}) {
    for (const std::string arguments : {"abc", "--help", "3 -1", "3 0", "4", "3x", "3 1 1"}) {
      const Outcome outcome = shell(run, program + " " + arguments);
      EXPECT_EQ(outcome.status, 1) << program << " " << arguments;
      EXPECT_THAT(outcome.errors, ::testing::ContainsRegex("^usage: [a-z_]+ [^\n]*\n$"));
    }
    EXPECT_EQ(shell(run, program + " 3 1").status, 0);
  }
}

TEST(Examples, ResumeAtAnyStageAndWorld) {
  const TinyRun run;
  const std::string folder = " " + run.folder().path("ck");
  EXPECT_THAT(shell(run, ZERO_RESUME " folder 4 1").errors, HasSubstr("usage: zero_resume FOLDER"));
  EXPECT_THAT(shell(run, ZERO_RESUME " --help").errors, HasSubstr("usage: zero_resume FOLDER"));
  const Outcome first = shell(run, kJob + "-np 2 " ZERO_RESUME + folder + " 3 2");
  EXPECT_EQ(first.status, 0) << first.errors;
  EXPECT_THAT(first.out, ::testing::ContainsRegex("^step   1  loss [0-9.]+\nstep   2 .*\nsaved\n"));
  const Outcome second = shell(run, ZERO_RESUME + folder + " 0 1");
  EXPECT_EQ(second.status, 0) << second.errors;
  EXPECT_THAT(second.out, ::testing::ContainsRegex("^goes on from .*step_00000002, 16 rows seen\n"
                                                   "step   3  loss [0-9.]+\nsaved\n"));
}
#endif

TEST(Program, RanksThatMpiDoesNotSeeDoNotTrainAlone) {
  const TinyRun run;
  const Outcome second =
      shell(run, "env PMI_RANK=1 PMI_SIZE=2 " + kTrain + " --config " + run.config());
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.complaints(),
              ::testing::ElementsAre(HasSubstr("[rank 1] MPI made a world of 1 rank(s), the "
                                               "launcher's variables say that this is rank 1 of "
                                               "2")));
  EXPECT_FALSE(std::filesystem::exists(run.folder().path("run.log")));
}

}  // namespace
}  // namespace zero
