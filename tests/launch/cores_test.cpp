// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "collectives/backends.h"
#include "tests/launch/environment_of.h"

namespace zero {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

CoreFacts machine(int cores, int ranks) {
  return {.allowed = cores, .launcher = cores, .physical = cores, .local_ranks = ranks};
}

TEST(Threads, RanksShareTheCoresOfTheirHost) {
  EXPECT_EQ(choose_threads(machine(8, 1)).threads, 8);
  EXPECT_EQ(choose_threads(machine(8, 3)).threads, 2);
  EXPECT_EQ(choose_threads(machine(2, 8)).threads, 1);
  EXPECT_EQ(choose_threads(machine(8, 2)).why, "8 cores / 2 rank(s)");
  CoreFacts hyperthreads = machine(16, 2);
  hyperthreads.physical = 8;
  EXPECT_EQ(choose_threads(hyperthreads).threads, 4);
  EXPECT_EQ(choose_threads(hyperthreads).why, "8 physical cores / 2 rank(s)");
}

TEST(Threads, AQuotaLimitsAllRanksTogether) {
  CoreFacts facts = machine(8, 2);
  facts.quota = 5.0;
  EXPECT_EQ(choose_threads(facts).threads, 2);
  EXPECT_EQ(choose_threads(facts).why, "5 cores by control group / 2 rank(s)");
  facts.quota = 0.5;
  EXPECT_EQ(choose_threads(facts).threads, 1);
  facts.quota = 100.0;
  EXPECT_EQ(choose_threads(facts).threads, 4);
}

TEST(Threads, ABoundRankHasItsCoresToItselfOrSharesThemEvenly) {
  // mpirun --map-by slot:PE=4, two ranks on eight cores.
  const CoreFacts own{.allowed = 4, .launcher = 8, .physical = 4, .local_ranks = 2};
  EXPECT_EQ(choose_threads(own).threads, 4);
  EXPECT_EQ(choose_threads(own).why, "4 cores / 1 rank(s) bound to them");
  // --bind-to socket, eight ranks on two sockets of four.
  const CoreFacts socket{.allowed = 4, .launcher = 8, .physical = 4, .local_ranks = 8};
  EXPECT_EQ(choose_threads(socket).threads, 1);
  const CoreFacts core{.allowed = 1, .launcher = 8, .physical = 1, .local_ranks = 8};
  EXPECT_EQ(choose_threads(core).threads, 1);
}

TEST(Threads, ThisMachineAnswers) {
  const CoreFacts facts = core_facts(1);
  EXPECT_GE(facts.allowed, 1);
  EXPECT_GE(facts.launcher, facts.allowed);
  EXPECT_GE(facts.physical, 1);
  EXPECT_LE(facts.physical, facts.allowed);
}

RankPlacement on(std::vector<int> cores, int threads, std::int64_t host = 0, double quota = 0) {
  return {.host = host, .threads = threads, .quota = quota, .cores = std::move(cores)};
}

PlacementReport placed(const std::vector<RankPlacement>& ranks,
                       const std::map<std::string, std::string>& variables = {}) {
  return judge_placements(ranks, testing::environment_of(variables));
}

TEST(Placements, CoresOfTheirOwnAreFine) {
  const PlacementReport report =
      placed({on({0, 1}, 2), on({2, 3}, 2), on({0, 1}, 2, 7), on({2, 3}, 2, 7)});
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_EQ(report.shared, "");
}

TEST(Placements, ThreadsBoundToFewerCoresAreWarnedOfWithTheRemedy) {
  const PlacementReport report = placed({on({0}, 2), on({1}, 2)});
  ASSERT_THAT(report.warnings, SizeIs(1));
  EXPECT_EQ(report.warnings[0],
            "rank 0 (and 1 more) computes with 2 threads on 1 core(s), to which the launcher has "
            "bound it: start with mpirun --bind-to none, or --map-by slot:PE=2");
}

TEST(Placements, UnderSlurmTheRemedyIsSruns) {
  const std::map<std::string, std::string> step{{"SLURM_STEP_ID", "0"}};
  EXPECT_THAT(placed({on({0}, 2), on({1}, 2)}, step).warnings,
              ElementsAre(HasSubstr(": start with srun --cpus-per-task=2, or --cpu-bind=none")));
  EXPECT_THAT(placed({on({0, 1}, 2), on({0, 1}, 2)}, step).warnings,
              ElementsAre(HasSubstr("start srun with --cpus-per-task")));
  EXPECT_THAT(
      placed({on({0}, 2), on({1}, 2)}, {{"SLURM_STEP_ID", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}})
          .warnings,
      ElementsAre(HasSubstr("start with mpirun --bind-to none")))
      << "mpirun's daemons are tasks of Slurm's";
}

TEST(Placements, MoreThreadsThanCoresAreWarnedOf) {
  EXPECT_THAT(placed({on({0, 1}, 2), on({0, 1}, 2)}).warnings,
              ElementsAre(HasSubstr("2 rank(s) with 4 thread(s) in all share 2 core(s); lower "
                                    "run.threads (\"auto\" fits them)")));
  EXPECT_THAT(placed({on({0, 1, 2, 3}, 2, 0, 1.5)}).warnings,
              ElementsAre(HasSubstr("share 1.5 core(s)")));
  EXPECT_THAT(placed({on({0}, 2)}).warnings, ElementsAre(HasSubstr("--bind-to none")));
}

TEST(Placements, RanksThatTakeTurnsAreSaidToWaitForCores) {
  const PlacementReport report = placed({on({0, 1}, 1), on({0, 1}, 1), on({0, 1}, 1)});
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_EQ(report.shared,
            "3 rank(s) with 3 thread(s) in all share 2 core(s): they take turns, so exposed "
            "communication includes waiting for a core");
  EXPECT_EQ(placed({on({}, 4)}).shared, "") << "where the system does not say";
}

TEST(Placements, EveryRankLearnsOfAll) {
  const int cores = usable_cores();
  std::mutex mutex;
  local::run(3, [&](Communicator& communicator) {
    const auto device = cpu::open();
    const auto ranks = gather_placements(communicator, *device, communicator.rank() + 1);
    const std::lock_guard lock(mutex);
    ASSERT_EQ(ranks.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(ranks[i].threads, static_cast<int>(i) + 1);
      EXPECT_EQ(ranks[i].host, ranks[0].host);
      EXPECT_EQ(ranks[i].cores.size(), static_cast<std::size_t>(cores));
    }
  });
}

TEST(Placements, ANarrowedMaskIsSeen) {
  if (usable_cores() < 2) GTEST_SKIP() << "there is one core";
  std::thread([] {
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
    int core = 0;
    while (!CPU_ISSET(core, &set)) ++core;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(set), &set), 0);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_EQ(choose_threads(core_facts(1)).threads, 1);
  }).join();
}

}  // namespace
}  // namespace zero
