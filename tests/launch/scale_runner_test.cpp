// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch/plan/model_choice.h"
#include "launch/scale/sweep_runner.h"
#include "launch/telemetry/output.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "tests/variable.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Scratch;
using testing::Variable;

/// A log of three steps, of which the first is the warm-up.
constexpr const char* kLog =
    R"({"step": 1, "tokens": 64, "step_seconds": 9.0, "exposed_communication_seconds": 1.0, "communication_seconds": 2.0}
{"step": 2, "tokens": 64, "step_seconds": 0.5, "exposed_communication_seconds": 0.1, "communication_seconds": 0.4}
{"step": 3, "tokens": 64, "step_seconds": 0.7, "exposed_communication_seconds": 0.1, "communication_seconds": 0.2}
{"final": true, "state_hash": "00ff", "plan_exact": true, "threads": 2, "memory": {"parameters": {"planned": 3, "peak": 2}, "gathered": {"planned": 1, "peak": 1}, "gradients": {"planned": 0, "peak": 0}, "optimizer": {"planned": 0, "peak": 0}, "activations": {"planned": 0, "peak": 0}, "communication": {"planned": 0, "peak": 0}, "staging": {"planned": 0, "peak": 0}, "other": {"planned": 0, "peak": 0}}, "device": {"planned": {"pages": 0}, "used": {"pages": 0}}, "profile": {"product_flop_per_second": 1e9}}
)";

/// A sweep of one point on two ranks, with a program of sh in place of zero_train.
struct FakeSweep {
  FakeSweep() {
    sweep.model = model_of("family=gpt2,layers=1,width=32,heads=2,context=32,vocabulary=256");
    sweep.sequence = 16;
    sweep.batch = 4;
    sweep.warmup = 1;
    folder.write("log", kLog);
    write_program("");
  }

  /// `first` runs before the log is written beside the configuration; each run adds a line to
  /// the file `started`.
  void write_program(const std::string& first) const {
    const std::string path = folder.write(
        "program", "#!/bin/sh\necho $2 >>" + folder.path("started") + "\n" + first + "\ncp " +
                       folder.path("log") + " \"$(dirname \"$2\")/run.log\"\n");
    ::chmod(path.c_str(), 0755);
  }
  std::vector<ScaleRun> run(int repeats = 1, double timeout = 60) const {
    SweepRunner runner(sweep,
                       {.folder = folder.path(),
                        .program = folder.path("program"),
                        .launcher = {.here = "head"},
                        .repeats = repeats,
                        .timeout = timeout,
                        .stopped = [this] { return stopped; }},
                       *console);
    return runner.run(points, [](const std::vector<ScaleRun>&) {});
  }
  std::int64_t started() const {
    const std::string lines = folder.read("started");
    return std::count(lines.begin(), lines.end(), '\n');
  }

  Scratch folder;
  Sweep sweep;
  bool stopped = false;
  std::vector<ScalePoint> points{{.stage = 0, .world = 2}, {.stage = 3, .world = 2}};
  std::unique_ptr<Console> console = std::make_unique<Console>(stdout, Console::Mode::silent);
};

TEST(SweepRunner, ReadsTheMedianBehindTheWarmUp) {
  const FakeSweep fake;
  const std::vector<ScaleRun> runs = fake.run();
  ASSERT_EQ(runs.size(), 2U);
  const RunFigures& found = runs[0].figures;
  EXPECT_EQ(runs[0].failure, "");
  EXPECT_DOUBLE_EQ(found.step_seconds, 0.6);
  EXPECT_DOUBLE_EQ(found.tokens_per_second, 64 / 0.6);
  EXPECT_DOUBLE_EQ(found.hidden_seconds(), 0.3 - 0.1);
  EXPECT_EQ(found.planned_bytes, 4);
  EXPECT_EQ(found.used_bytes, 3);
  EXPECT_EQ(found.state_hash, "00ff");
  const auto written =
      nlohmann::json::parse(fake.folder.read("runs/strong-stage3-world2.1/ds.json"));
  EXPECT_EQ(written["zero_optimization"]["stage"], 3);
}

TEST(SweepRunner, GoesOnWhereItWasCut) {
  FakeSweep fake;
  fake.run();
  EXPECT_EQ(fake.started(), 2);
  EXPECT_EQ(fake.run(2).size(), 4U);  // the second turn alone is run
  EXPECT_EQ(fake.started(), 4);
  std::filesystem::remove(fake.folder.path("runs/strong-stage0-world2.2/result.json"));
  const std::vector<ScaleRun> again = fake.run(2);
  EXPECT_EQ(fake.started(), 5);
  EXPECT_DOUBLE_EQ(again[1].figures.step_seconds, 0.6);
  fake.sweep.batch = 8;  // another question
  fake.run(1);
  EXPECT_EQ(fake.started(), 7);
  fake.write_program("true");  // another program
  fake.run(1);
  EXPECT_EQ(fake.started(), 9);
}

TEST(SweepRunner, ABrokenResultIsMeasuredAgain) {
  FakeSweep fake;
  fake.points.resize(1);
  fake.run();
  const std::string path = fake.folder.path("runs/strong-stage0-world2.1/result.json");
  const std::string good = fake.folder.read("runs/strong-stage0-world2.1/result.json");
  nlohmann::json still = nlohmann::json::parse(good);
  still["figures"]["step_seconds"] = 0;
  std::int64_t started = 1;
  for (const std::string& bad : {good.substr(0, 100), std::string("[]"), still.dump()}) {
    fake.folder.write("runs/strong-stage0-world2.1/result.json", bad);
    EXPECT_DOUBLE_EQ(fake.run()[0].figures.step_seconds, 0.6);
    EXPECT_EQ(fake.started(), ++started) << bad;
  }
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // nobody writes into it
  EXPECT_DOUBLE_EQ(fake.run()[0].figures.step_seconds, 0.6);
}

TEST(SweepRunner, TheReasonIsFoundBehindALongOutput) {
  FakeSweep fake;
  fake.points.resize(1);
  fake.write_program("head -c 3000000 /dev/zero; echo; echo 'zero_train: no room' >&2; exit 3");
  EXPECT_EQ(fake.run()[0].failure, "zero_train: no room (status 3)");
}

TEST(SweepRunner, AFailedRunIsARowWithItsOwnErrorAndIsDoneAgain) {
  const FakeSweep fake;
  fake.write_program("echo noise; echo 'zero_train: [rank 1] no room' >&2; echo bye; exit 3");
  const std::vector<ScaleRun> runs = fake.run(2);
  ASSERT_EQ(runs.size(), 2U);  // a point that fails is not repeated
  EXPECT_EQ(runs[0].failure, "zero_train: [rank 1] no room (status 3)");
  fake.write_program("kill -9 $$");
  EXPECT_EQ(fake.run(1)[0].failure, "signal 9, without a word");
  fake.write_program("exit 0");  // without a log
  EXPECT_THAT(fake.run(1)[0].failure, HasSubstr("run.log: cannot be read"));
  fake.write_program("");
  EXPECT_EQ(fake.run(1)[0].failure, "");
}

TEST(SweepRunner, AHungRunIsEndedWithAllItStarted) {
  FakeSweep fake;
  fake.points.resize(1);
  // Neither hears SIGTERM, and the second is no child of the first any more.
  fake.write_program("trap '' TERM; (setsid sleep 1000 & echo $! >" + fake.folder.path("orphan") +
                     "); echo waits; sleep 1000; sleep 1000");
  EXPECT_THAT(fake.run(1, 1)[0].failure,
              AllOf(HasSubstr("had not ended after 1 s (--timeout)"), HasSubstr("waits")));
  const std::string orphan = fake.folder.read("orphan");
  ASSERT_FALSE(orphan.empty());
  EXPECT_FALSE(std::filesystem::exists("/proc/" + orphan.substr(0, orphan.find('\n'))));
}

TEST(SweepRunner, StopsAndKeepsWhatIsMeasured) {
  FakeSweep fake;
  fake.stopped = true;
  fake.write_program("sleep 1000");
  EXPECT_TRUE(fake.run().empty());
  fake.stopped = false;
  fake.write_program("");
  EXPECT_EQ(fake.run().size(), 2U);
}

TEST(SweepRunner, MeasuresTheMachineOnce) {
  const FakeSweep fake;
  SweepRunner runner(fake.sweep,
                     {.folder = fake.folder.path(), .program = fake.folder.path("program")},
                     *fake.console);
  EXPECT_DOUBLE_EQ(runner.peak().product_rate, 1e9);
  EXPECT_EQ(runner.peak().cores, 2);
  EXPECT_EQ(fake.started(), 1);
  EXPECT_THAT(
      error_of([&] { SweepRunner(fake.sweep, {.folder = "", .program = "/none"}, *fake.console); }),
      HasSubstr("--program /none: cannot be read"));
}

TEST(Subprocess, InheritsSettingsAndNoRank) {
  // As users set them, the operator of Kubernetes for MPI, and mpirun for a job's settings.
  const std::vector<std::string> kept{"OMPI_MCA_orte_keep_fqdn_hostnames=true",
                                      "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
                                      "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10",
                                      "OMPI_MCA_oob_tcp_if_include=eth0",
                                      "OMPI_MCA_pml=ob1",
                                      "OMPI_ALLOW_RUN_AS_ROOT=1",
                                      "PRTE_MCA_prte_keep_fqdn_hostnames=true",
                                      "SLURM_JOB_ID=7"};
  const std::vector<std::string> left{"OMPI_COMM_WORLD_RANK=1",
                                      "OMPI_MCA_ess=^singleton",
                                      "OMPI_MCA_ess_base_vpid=1",
                                      "OMPI_MCA_initial_wdir=/",
                                      "OMPI_MCA_orte_hnp_uri=1.0;tcp://10.0.0.1:1",
                                      "OMPI_MCA_orte_ess_num_procs=2",
                                      "OMPI_MCA_pmix=^s1,s2,cray",
                                      "PMIX_RANK=1",
                                      "PMI_FD=7",
                                      "SLURM_PROCID=1",
                                      "SLURM_STEP_ID=0",
                                      "RANK=1",
                                      "WORLD_SIZE=2",
                                      "LOCAL_RANK=1",
                                      "LOCAL_WORLD_SIZE=2"};
  std::list<Variable> set;
  for (const std::string& each : kept) set.emplace_back(each);
  for (const std::string& each : left) set.emplace_back(each);
  const std::string found = "\n" + run_command({"env"}).output;
  for (const std::string& each : kept) EXPECT_THAT(found, HasSubstr("\n" + each + "\n"));
  for (const std::string& each : left) EXPECT_THAT(found, Not(HasSubstr("\n" + each + "\n")));
}

TEST(Job, EndsAllWhenOneFails) {
  const Scratch folder;
  Job job({{"sh", "-c", "exit 7"}, {"sh", "-c", "sleep 1000"}}, folder.path("out"));
  std::optional<int> status;
  while (!(status = job.status())) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(status, 7);
  job.end(std::chrono::milliseconds(0));
  EXPECT_THAT(error_of([&] { Job({{"/none/such"}}, folder.path("out")); }),
              HasSubstr("cannot start /none/such"));
}

}  // namespace
}  // namespace zero
