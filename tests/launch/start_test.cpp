// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "collectives/backends.h"
#include "launch/rendezvous/same_build.h"
#include "tests/errors.h"
#include "tests/launch/environment_of.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

Start started(const Variables& variables, int local_ranks = kNoLocalRanks,
              MpiSupport mpi = mpi_support()) {
  return read_start(testing::environment_of(variables), local_ranks, mpi);
}

const Variables kTorchrun{{"RANK", "5"},        {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},  {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
const Variables kSlurm{{"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "8"},
                       {"SLURM_LOCALID", "1"}, {"SLURM_NODELIST", "gpu-[003-010,12],login"},
                       {"SLURM_NNODES", "2"},  {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "0"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables.insert_or_assign(name, value);
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(Start, AProcessOfItsOwnIsAlone) {
  const Start start = started({});
  EXPECT_EQ(start.by, Start::By::alone);
  EXPECT_EQ(start.world, 1);
  EXPECT_EQ(planned_backend(start, 1), BackendKind::local);
}

TEST(Start, MpirunsVariablesAreReadBeforeMpiStarts) {
  const Variables ompi{{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_SIZE", "3"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  for (const Variables& variables :
       {ompi, with(ompi, without(kSlurm, "SLURM_STEP_ID")), with(ompi, {{"PMIX_RANK", "2"}}),
        with(ompi, with(kSlurm, {{"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "1"}}))}) {
    const Start start = started(variables, kNoLocalRanks, MpiSupport::built_in);
    EXPECT_EQ(start.by, Start::By::mpirun);
    EXPECT_EQ(start.rank, 2);
    EXPECT_EQ(start.world, 3);
    EXPECT_EQ(start.local_rank, 1);
    EXPECT_EQ(start.local_world, 2);
    if (mpi::available()) {
      EXPECT_EQ(planned_backend(start, 3), BackendKind::mpi);
    }
  }
}

TEST(Start, MpirunWithoutMpiIsAnError) {
  const auto bare = [](const Variables& variables) {
    return started(variables, kNoLocalRanks, MpiSupport::missing);
  };
  EXPECT_THAT(error_of([&] {
                bare({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}});
              }),
              HasSubstr("mpirun started 3 processes, but this build has no MPI"));
  EXPECT_THAT(error_of([&] {
                bare({{"PMIX_RANK", "1"}});
              }),
              HasSubstr("PMIX_RANK or PMI_RANK is 1, so a launcher started several processes, but "
                        "this build has no MPI and no variable says how many: build it with "
                        "-DZERO_MPI=ON, or set RANK"));
  EXPECT_EQ(bare({{"OMPI_COMM_WORLD_SIZE", "1"}}).by, Start::By::alone);
  EXPECT_EQ(bare({{"PMIX_RANK", "0"}}).by, Start::By::alone);
}

struct Case {
  const char* name;
  Variables variables;
  Start::By with_mpi;
  Start::By without_mpi;
};

TEST(Start, ARankWithoutAWorldLeavesTheWordToTheOtherVariables) {
  using By = Start::By;
  const Variables elastic = with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}});
  const Variables agent{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  const std::vector<Case> cases{
      {"srun --mpi=pmix", with(kSlurm, {{"PMIX_RANK", "5"}}), By::mpirun, By::slurm},
      {"srun --mpi=pmi2", with(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"PMI_FD", "9"}}),
       By::slurm, By::slurm},
      {"the same, of which some set the rank alone", with(kSlurm, {{"PMI_RANK", "5"}}), By::slurm,
       By::slurm},
      {"torchrun under it, a task a host", with(with(kSlurm, elastic), agent), By::variables,
       By::variables},
      {"a script under it", with(with(kSlurm, kTorchrun), {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}),
       By::variables, By::variables},
      {"variables of a script under it", with(with(kSlurm, kTorchrun), {{"PMIX_RANK", "5"}}),
       By::variables, By::variables},
      {"torchrun under it", with(with(kSlurm, elastic), {{"PMIX_RANK", "1"}}), By::variables,
       By::variables},
      {"torchrun under another launcher", with(elastic, {{"PMI_RANK", "1"}}), By::variables,
       By::variables},
  };
  for (const Case& one : cases) {
    for (const MpiSupport mpi : {MpiSupport::built_in, MpiSupport::missing}) {
      const Start start = started(one.variables, kNoLocalRanks, mpi);
      EXPECT_EQ(start.by, mpi == MpiSupport::built_in ? one.with_mpi : one.without_mpi) << one.name;
      EXPECT_EQ(start.rank, 5) << one.name;
      EXPECT_EQ(start.world, 8) << one.name;
      EXPECT_EQ(start.local_rank, 1) << one.name;
      EXPECT_EQ(start.local_world, 4) << one.name;
      EXPECT_TRUE(start.world_is_said) << one.name;
    }
  }
  const Start hydra = started(with(kSlurm, {{"SLURM_NTASKS", "2"},
                                            {"SLURM_PROCID", "1"},
                                            {"PMI_RANK", "5"},
                                            {"PMI_SIZE", "8"},
                                            {"MPI_LOCALRANKID", "1"},
                                            {"MPI_LOCALNRANKS", "4"}}),
                              kNoLocalRanks, MpiSupport::built_in);
  EXPECT_EQ(hydra.by, By::mpirun) << "its daemons are tasks of Slurm's";
  EXPECT_EQ(hydra.world, 8);
  const Start alone = started({{"PMIX_RANK", "5"}}, kNoLocalRanks, MpiSupport::built_in);
  EXPECT_EQ(alone.by, By::mpirun) << "MPI itself knows how many there are";
  EXPECT_EQ(alone.rank, 5);
  EXPECT_FALSE(alone.world_is_said);
}

TEST(Start, AWorldThatMpiDoesNotSeeIsAnError) {
  const Start start =
      started({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, kNoLocalRanks, MpiSupport::built_in);
  EXPECT_EQ(error_of([&] { check_mpi_world(start, 2); }), "no error");
  EXPECT_THAT(error_of([&] { check_mpi_world(start, 1); }),
              HasSubstr("[rank 1] MPI made a world of 1 rank(s), the launcher's variables say that "
                        "this is rank 1 of 2: the MPI of this build does not understand what "
                        "started it; use that MPI's own mpirun, or srun --mpi=pmix"));
  const Start unsaid = started({{"PMIX_RANK", "1"}}, kNoLocalRanks, MpiSupport::built_in);
  EXPECT_EQ(error_of([&] { check_mpi_world(unsaid, 3); }), "no error");
}

TEST(Start, TorchrunsVariablesAreEnough) {
  const Start start = started(kTorchrun);
  EXPECT_EQ(start.by, Start::By::variables);
  EXPECT_EQ(start.rank, 5);
  EXPECT_EQ(start.world, 8);
  EXPECT_EQ(start.local_rank, 1);
  EXPECT_EQ(start.local_world, 4);
  EXPECT_EQ(start.address, "a");
  EXPECT_EQ(start.port, 29500);
  EXPECT_EQ(start.spread, Spread::several_hosts);
  EXPECT_EQ(started(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}})).spread, Spread::one_host);
  EXPECT_EQ(started(without(kTorchrun, "LOCAL_WORLD_SIZE")).local_world, 8);
  EXPECT_EQ(started(without(kTorchrun, "LOCAL_WORLD_SIZE")).spread, Spread::unsaid);
  EXPECT_EQ(started(with(kSlurm, kTorchrun)).by, Start::By::variables) << "torchrun under srun";
  const Start shared = started(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_EQ(shared.port, 29501) << "the agent has the port itself";
  EXPECT_THAT(shared.hint, HasSubstr("with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on every host"));
  const Start one_host = started(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}}));
  EXPECT_EQ(planned_backend(one_host, 8), BackendKind::host);
}

TEST(Start, ALauncherMayStartAnother) {
  const Variables agent{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}};
  const Variables by_srun = with(with(kTorchrun, kSlurm), agent);
  EXPECT_EQ(started(by_srun).rank, 5) << "a launcher of four ranks a host, which srun started";
  const Variables own_jobs = with(
      with(kSlurm, kTorchrun), {{"TORCHELASTIC_RUN_ID", "a"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}});
  EXPECT_EQ(started(own_jobs).world, 4) << "a torchrun of its own in each task";
}

TEST(Start, MpirunMayBeStartedFromAShellOfAStep) {
  // srun -n 8 --pty bash, and in it mpirun -np 4.
  const Variables shell = with(kSlurm, {{"SLURM_NNODES", "1"}, {"SLURM_PROCID", "0"}});
  const Variables rank{{"OMPI_COMM_WORLD_RANK", "3"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                       {"PMIX_RANK", "3"}};
  const auto of_mpi = [](const Variables& variables) {
    return started(variables, kNoLocalRanks, MpiSupport::built_in);
  };
  const Start start = of_mpi(with(shell, rank));
  EXPECT_EQ(start.by, Start::By::mpirun);
  EXPECT_EQ(start.rank, 3);
  EXPECT_EQ(start.world, 4);
  // Left over from that mpirun, in a step started later.
  for (const Variables& later :
       {with(with(shell, rank), {{"SLURM_PROCID", "5"}}),
        with(with(shell, rank), {{"PMIX_RANK", "0"}}),
        without(with(shell, rank), "OMPI_COMM_WORLD_LOCAL_SIZE"),
        with(with(shell, rank), {{"OMPI_COMM_WORLD_RANK", "4"}, {"PMIX_RANK", "4"}})}) {
    EXPECT_THAT(error_of([&] { of_mpi(later); }), HasSubstr("is left over from another launcher"));
  }
}

TEST(Start, ANumberOfHostsThatACloudPresetsIsPassedOver) {
  const Variables cloud{{"WORLD_SIZE", "2"},
                        {"NODE_RANK", "1"},
                        {"MASTER_ADDR", "10.0.0.1"},
                        {"MASTER_PORT", "29400"}};
  EXPECT_EQ(started(cloud, 3).world, 3);
  const Variables mpirun{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "16"}};
  EXPECT_EQ(started(with(cloud, mpirun), kNoLocalRanks, MpiSupport::built_in).world, 16);
  EXPECT_EQ(started(with(cloud, kSlurm)).world, 8);
  EXPECT_THAT(error_of([&] { started(cloud); }),
              HasSubstr("the variable RANK is not set, though WORLD_SIZE is"));
}

TEST(Start, SlurmsVariablesAreEnough) {
  const Start start = started(kSlurm);
  EXPECT_EQ(start.by, Start::By::slurm);
  EXPECT_EQ(start.rank, 5);
  EXPECT_EQ(start.world, 8);
  EXPECT_EQ(start.local_rank, 1);
  EXPECT_EQ(start.local_world, 4);
  EXPECT_EQ(start.spread, Spread::several_hosts);
  EXPECT_EQ(started(with(kSlurm, {{"SLURM_NNODES", "1"}})).spread, Spread::one_host);
  EXPECT_EQ(started(without(kSlurm, "SLURM_NNODES")).spread, Spread::unsaid);
  EXPECT_EQ(start.address, "gpu-003");
  EXPECT_EQ(start.port, 24711);
  const Start told = started(with(kSlurm, {{"MASTER_ADDR", "b"}, {"MASTER_PORT", "77"}}));
  EXPECT_EQ(told.address, "b");
  EXPECT_EQ(told.port, 77);
}

TEST(Start, ProcessesOfASlurmJobThatSrunDidNotStartAreAlone) {
  const Variables shell{{"SLURM_JOB_ID", "4711"}, {"SLURM_NTASKS", "4"}, {"SLURM_NNODES", "2"}};
  const Variables script = with(shell, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
  const Variables step = with(script, {{"SLURM_STEP_ID", "4294967290"}, {"PMIX_RANK", "0"}});
  const Variables no_job = without(shell, "SLURM_JOB_ID");
  for (const Variables& variables : {shell, script, step, no_job}) {
    const Start start = started(variables);
    EXPECT_EQ(start.by, Start::By::alone);
    EXPECT_EQ(start.world, 1);
    EXPECT_EQ(start.tasks_to_start, 4);
    EXPECT_THAT(error_of([&] { check_started(start); }),
                HasSubstr("Slurm has given this job 4 tasks, and this process, which srun did not "
                          "start, is alone: start the ranks with srun (srun -n 4 ...) or mpirun; "
                          "for one rank here, or several in this process, give --local-ranks"));
    EXPECT_THAT(error_of([&] { run_ranks(start, BetweenHosts::mpi, nullptr, nullptr, {}); }),
                HasSubstr("4 tasks"));
    EXPECT_EQ(error_of([&] { check_started(started(variables, 1)); }), "no error");
    EXPECT_EQ(started(with(variables, kTorchrun)).by, Start::By::variables);
    EXPECT_EQ(started(with(variables, {{"OMPI_COMM_WORLD_SIZE", "4"}}), kNoLocalRanks,
                      MpiSupport::built_in)
                  .by,
              Start::By::mpirun);
  }
  const Variables by_node = with(without(script, "SLURM_NTASKS"), {{"SLURM_NTASKS_PER_NODE", "3"}});
  EXPECT_EQ(started(by_node).tasks_to_start, 6);
  const Start one = started(without(without(script, "SLURM_NTASKS"), "SLURM_NNODES"));
  EXPECT_EQ(one.tasks_to_start, 1);
  EXPECT_EQ(error_of([&] { check_started(one); }), "no error");
}

TEST(Start, RanksOfCpusOnSeveralHostsFormAJobOfMpiOrAreToldThatTheyNeedIt) {
  const auto told = AllOf(HasSubstr("[rank 5] the ranks are on several hosts and compute on the "
                                    "CPU, and between hosts CPUs talk through MPI alone: start "
                                    "them with mpirun, or with srun --mpi=pmix; or build with "),
                          Not(HasSubstr("SECRET")));
  for (const Variables& variables : {kSlurm, kTorchrun}) {
    const Start start = started(variables);
    const std::string error = error_of([&] { check_cpu_ranks_can_talk(start); });
    if (mpi::can_form_job()) {
      EXPECT_EQ(error, "no error");
      EXPECT_EQ(planned_backend(start, 8), BackendKind::mpi);
    } else {
      EXPECT_THAT(error, told);
      EXPECT_EQ(planned_backend(start, 8), BackendKind::host);
    }
  }
  const Variables pmix = with(kSlurm, {{"PMIX_RANK", "5"}});
  for (const Start& start : {started(pmix, kNoLocalRanks, MpiSupport::built_in), started({}, 3),
                             started({}), started(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "8"}}))}) {
    EXPECT_EQ(error_of([&] { check_cpu_ranks_can_talk(start); }), "no error");
  }
}

TEST(SameBuild, AnotherProgramIsNamed) {
  const std::vector<RankProgram> same(3, {.host = "a", .version = "1.2", .build = "5f"});
  EXPECT_EQ(other_program(same), "");
  std::vector<RankProgram> other = same;
  other[2] = {.host = "b", .version = "1.2", .build = "60"};
  EXPECT_EQ(other_program(other),
            "rank 2 on host b runs zero 1.2 (build 60), rank 0 on host a runs zero 1.2 (build 5f); "
            "all ranks must run one build of the program: copy it to all hosts");
  EXPECT_GE(build_mark().size(), 16U);
  EXPECT_EQ(build_mark().find_first_not_of('0') == std::string::npos, false);
}

TEST(Start, SlurmsListsOfHostsAreRead) {
  EXPECT_EQ(first_host("one"), "one");
  EXPECT_EQ(first_host("a1,b2"), "a1");
  EXPECT_EQ(first_host("n[07,9-11]x,m"), "n07x");
  EXPECT_EQ(first_host("r[1-2]n[5-6]"), "r1n5");
  EXPECT_THAT(error_of([] { static_cast<void>(first_host("n[07")); }),
              HasSubstr("the node list \"n[07\" has a [ without its ]"));
  EXPECT_THAT(error_of([] { static_cast<void>(first_host(",n")); }), HasSubstr("names no host"));
}

TEST(Start, ThreadsNeedNoLauncher) {
  const Start start = started({}, 3);
  EXPECT_EQ(start.by, Start::By::threads);
  EXPECT_EQ(start.world, 3);
  EXPECT_EQ(start.local_world, 3);
  EXPECT_EQ(planned_backend(start, 3), BackendKind::local);
  EXPECT_EQ(started(without(kSlurm, "SLURM_STEP_ID"), 3).by, Start::By::threads) << "sbatch";
}

TEST(Start, TheLauncherNamesTheJob) {
  const Variables step = with(kSlurm, {{"SLURM_STEP_ID", "2"}});
  const Variables array =
      with(step, {{"SLURM_ARRAY_JOB_ID", "4700"}, {"SLURM_ARRAY_TASK_ID", "9"}});
  EXPECT_EQ(started(kTorchrun).job, "") << "by hand";
  EXPECT_EQ(started(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})).job, "none");
  EXPECT_EQ(started(with(step, {{"TORCHELASTIC_RUN_ID", "mine"}})).job, "mine");
  EXPECT_EQ(started(kSlurm).job, "4711.0");
  EXPECT_EQ(started(step).job, "4711.2");
  EXPECT_EQ(started(array).job, "4711.2");
  EXPECT_EQ(started(with(step, kTorchrun)).job, "4711.2") << "a script that srun started";
  EXPECT_THAT(
      error_of([] {
        started(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", std::string(257, 'r')}}));
      }),
      HasSubstr("the variable TORCHELASTIC_RUN_ID has 257 bytes, expected at most 256; give "
                "torchrun a shorter --rdzv-id"));
}

struct Mistake {
  Variables variables;
  const char* message;
  int local_ranks = kNoLocalRanks;
};

TEST(Start, ContradictionsAndHalvesAreNamed) {
  const std::vector<Mistake> mistakes{
      {without(kTorchrun, "WORLD_SIZE"),
       "the variable WORLD_SIZE is not set, though RANK is; set it too, or neither"},
      {without(kTorchrun, "RANK"), "the variable RANK is not set, though WORLD_SIZE is"},
      {without(kTorchrun, "LOCAL_RANK"), "LOCAL_RANK is not set, though RANK and WORLD_SIZE are"},
      {without(kTorchrun, "MASTER_ADDR"), "MASTER_ADDR is not set, though RANK and WORLD_SIZE are"},
      {without(kTorchrun, "MASTER_PORT"), "MASTER_PORT is not set, though RANK and WORLD_SIZE are"},
      {with(kTorchrun, {{"RANK", "8"}}),
       "the variable RANK is 8, WORLD_SIZE is 8; ranks are numbered from 0 to 7"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "the variable WORLD_SIZE is 0; expected at least 1"},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "is said to be rank 4 of 4 on its host"},
      {with(kTorchrun, {{"MASTER_PORT", "http"}}),
       "the variable MASTER_PORT is \"http\"; expected a whole number from 0 to 65535"},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT is \"70000\""},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), "the ranks would meet at port 0"},
      {with(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "5"}, {"OMPI_COMM_WORLD_SIZE", "6"}}),
       "the variable WORLD_SIZE is 8, expected 6 as OMPI_COMM_WORLD_SIZE says: one of the two is "
       "left over from another launcher; unset RANK, WORLD_SIZE, LOCAL_RANK"},
      {with(kTorchrun, {{"PMI_RANK", "4"}, {"PMI_SIZE", "8"}}),
       "the variable RANK is 5, expected 4 as PMI_RANK says"},
      {with(kSlurm, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
       "the variable WORLD_SIZE is 1, expected 8 as SLURM_NTASKS says"},
      {with(with(kSlurm, kTorchrun), {{"RANK", "0"}}),
       "the variable RANK is 0, expected 5 as SLURM_PROCID says"},
      {with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "4"}}),
       "the variable SLURM_NTASKS is 8, expected 4 as SLURM_STEP_NUM_TASKS says"},
      {with(kSlurm, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}),
       "the variable OMPI_COMM_WORLD_SIZE is 1, expected 8 as SLURM_NTASKS says: one of the two "
       "is left over from another launcher; unset it and its kin"},
      {without(kSlurm, "SLURM_NTASKS"), "SLURM_NTASKS is not set, though SLURM_PROCID is"},
      {without(kSlurm, "SLURM_NODELIST"), "neither SLURM_NODELIST nor MASTER_ADDR is set"},
      {without(kSlurm, "SLURM_JOB_ID"), "SLURM_JOB_ID is not set, though SLURM_PROCID is and "},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}},
       "--local-ranks 3 makes all ranks in one process, but mpirun started 2 of them",
       3},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "that a launcher started 2 of them", 3},
      {kSlurm, "but srun started 8 of them", 3},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(error_of([&] { started(mistake.variables, mistake.local_ranks); }),
                HasSubstr(mistake.message));
  }
}

}  // namespace
}  // namespace zero
