// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/train/stop_votes.h"
#include "tests/launch/environment_of.h"

namespace zero {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Signals::Time kStart{};

TEST(Signals, EndTheProcessUntilRanksListen) {
  Signals signals;
  EXPECT_TRUE(signals.arrived(SIGTERM, kStart).ends_process);
  EXPECT_TRUE(signals.arrived(SIGINT, kStart).ends_process);
  EXPECT_EQ(signals.asked().ending, 0);
}

TEST(Signals, AnEarlySaveRequestWaitsUntilRanksListen) {
  Signals signals;
  const Signals::Answer save = signals.arrived(SIGUSR1, kStart);
  EXPECT_FALSE(save.ends_process);
  EXPECT_EQ(save.line, "");
  EXPECT_EQ(signals.listen(), "SIGUSR1: saving a checkpoint after this step");
  EXPECT_EQ(signals.asked().saves, 1);
  StopVotes requests({.signals = &signals, .first_rank = true, .started = kStart});
  EXPECT_TRUE(requests.decide(requests.vote(kStart + seconds(60)), kStart + seconds(60)).save);
  signals.stop_listening();
  EXPECT_EQ(signals.arrived(SIGUSR1, kStart).line,
            "SIGUSR1: the last step is done; nothing is saved");
  EXPECT_EQ(signals.asked().saves, 1);
}

TEST(Signals, SayThatARunWithoutAFolderSavesNothing) {
  Signals signals;
  EXPECT_EQ(signals.refuse(), "");
  EXPECT_EQ(signals.arrived(SIGUSR1, kStart).line,
            "SIGUSR1: no run.checkpoint.folder; nothing is saved");
  EXPECT_TRUE(signals.arrived(SIGTERM, kStart).ends_process);
  Signals early;
  early.arrived(SIGUSR1, kStart);
  EXPECT_EQ(early.refuse(), "SIGUSR1: no run.checkpoint.folder; nothing is saved");
  EXPECT_EQ(Signals().listen(), "");
}

TEST(Signals, TheFirstOneAsksAndASIGINTBehindItEnds) {
  Signals signals;
  signals.listen();
  const Signals::Answer first = signals.arrived(SIGINT, kStart);
  EXPECT_FALSE(first.ends_process);
  EXPECT_THAT(first.line, HasSubstr("SIGINT: saving a checkpoint after this step, then ending"));
  EXPECT_EQ(signals.asked().ending, SIGINT);
  // timeout(1) sends a process and its group the signal.
  EXPECT_FALSE(signals.arrived(SIGINT, kStart + milliseconds(5)).ends_process);
  EXPECT_TRUE(signals.arrived(SIGINT, kStart + seconds(1)).ends_process);
}

TEST(Signals, TellThatMpirunKillsSoonUnlessItWasToldToWait) {
  std::map<std::string, std::string> variables;
  const auto answer_to = [&](int signal) {
    Signals signals(mpirun_kills(testing::environment_of(variables)));
    signals.listen();
    return signals.arrived(signal, kStart).line;
  };
  const auto kills = HasSubstr("kills this run within seconds (--mca odls_base_sigkill_timeout 60");
  EXPECT_THAT(answer_to(SIGTERM), Not(kills));
  variables["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_THAT(answer_to(SIGTERM), kills);
  EXPECT_THAT(answer_to(SIGINT), Not(kills)) << "mpirun passes it on as SIGTERM";
  variables["OMPI_MCA_odls_base_sigkill_timeout"] = "60";
  EXPECT_THAT(answer_to(SIGTERM), Not(kills));
}

// LSF sends SIGINT, SIGTERM and SIGKILL, 10 s apart; Slurm the signal of --signal a second before a
// requeue's SIGTERM, and SIGTERM again before SIGKILL: the time that is left is the save's.
TEST(Signals, ASIGTERMBehindAnotherSignalCutsNoSave) {
  for (const int first : {SIGINT, SIGTERM}) {
    Signals signals;
    signals.listen();
    EXPECT_FALSE(signals.arrived(first, kStart).ends_process);
    const Signals::Answer same = signals.arrived(SIGTERM, kStart + milliseconds(5));
    EXPECT_FALSE(same.ends_process);
    EXPECT_EQ(same.line, "");
    for (const int later : {1, 10, 180}) {
      const Signals::Answer again = signals.arrived(SIGTERM, kStart + seconds(later));
      EXPECT_FALSE(again.ends_process);
      EXPECT_EQ(again.line,
                "SIGTERM again: the save goes on; from now on SIGINT (Ctrl-C) ends at once");
    }
    EXPECT_EQ(signals.asked().ending, first);
    EXPECT_TRUE(signals.arrived(SIGINT, kStart + seconds(181)).ends_process);
  }
}

TEST(Signals, EndTheProcessAgainOnceRanksStopListening) {
  Signals signals;
  signals.listen();
  EXPECT_EQ(signals.stop_listening(), 0);
  EXPECT_TRUE(signals.arrived(SIGTERM, kStart).ends_process);
  Signals late;
  late.listen();
  late.arrived(SIGTERM, kStart);
  EXPECT_EQ(late.stop_listening(), SIGTERM);
}

/// Three ranks, processes of their own, that vote and decide.
class Job {
 public:
  explicit Job(double save_seconds = 0, double stop_seconds = 0) {
    for (int rank = 0; rank < 3; ++rank) {
      signals[rank].listen();
      ranks.emplace_back(StopVotes::Options{.signals = &signals[rank],
                                            .first_rank = rank == 0,
                                            .started = kStart,
                                            .save_seconds = save_seconds,
                                            .stop_seconds = stop_seconds});
    }
  }

  /// A step that ends at `at` of the first rank's clock; `between` happens behind the votes.
  Decision step(
      Signals::Time at, const std::function<void()>& between = [] {}) {
    std::int64_t sum = 0;
    // The clocks of the others say nothing.
    for (int rank = 0; rank < 3; ++rank) sum += ranks[rank].vote(rank == 0 ? at : kStart);
    between();
    std::vector<Decision> all;
    for (StopVotes& rank : ranks) all.push_back(rank.decide(sum, at));
    for (const Decision& each : all) {
      EXPECT_EQ(each.save, all[0].save);
      EXPECT_EQ(each.signal, all[0].signal);
      EXPECT_EQ(each.time_is_up, all[0].time_is_up);
    }
    return all[0];
  }

  std::array<Signals, 3> signals;
  std::vector<StopVotes> ranks;
};

TEST(StopVotes, OneRankThatHearsIsEnough) {
  Job job;
  EXPECT_FALSE(job.step(kStart).save);
  job.signals[2].arrived(SIGTERM, kStart);
  const Decision decision = job.step(kStart);
  EXPECT_TRUE(decision.save);
  EXPECT_TRUE(decision.ends());
  EXPECT_EQ(decision.signal, SIGTERM);
}

TEST(StopVotes, AnInterruptIsNamedBeforeATermination) {
  Job job;
  job.signals[1].arrived(SIGINT, kStart);
  job.signals[0].arrived(SIGTERM, kStart);
  EXPECT_EQ(job.step(kStart).signal, SIGINT);
}

TEST(StopVotes, ASaveThatIsPassedOnToAllRanksIsOneSave) {
  Job job;
  job.signals[0].arrived(SIGUSR1, kStart + seconds(1));
  const auto others_hear = [&] {
    job.signals[1].arrived(SIGUSR1, kStart + seconds(1));
    job.signals[2].arrived(SIGUSR1, kStart + seconds(2));
  };
  const Decision first = job.step(kStart + seconds(1), others_hear);
  EXPECT_TRUE(first.save);
  EXPECT_FALSE(first.ends());
  EXPECT_FALSE(job.step(kStart + seconds(60)).save);  // a long step later
  // Another one, that any one rank hears, counts again.
  job.signals[2].arrived(SIGUSR1, kStart + seconds(70));
  EXPECT_TRUE(job.step(kStart + seconds(70)).save);
  job.signals[1].arrived(SIGUSR1, kStart + seconds(90));
  EXPECT_TRUE(job.step(kStart + seconds(90)).save);
  EXPECT_FALSE(job.step(kStart + seconds(91)).save);
}

TEST(StopVotes, TheFirstRanksClockAsksForSavesAndTheEnd) {
  Job job(/*save_seconds=*/60, /*stop_seconds=*/150);
  EXPECT_FALSE(job.step(kStart + seconds(59)).save);
  EXPECT_TRUE(job.step(kStart + seconds(61)).save);
  for (StopVotes& rank : job.ranks) rank.saving(kStart + seconds(61));
  EXPECT_FALSE(job.step(kStart + seconds(120)).save);
  EXPECT_TRUE(job.step(kStart + seconds(121)).save);
  const Decision last = job.step(kStart + seconds(151));
  EXPECT_TRUE(last.time_is_up);
  EXPECT_TRUE(last.save);
  EXPECT_EQ(last.signal, 0);
}

}  // namespace
}  // namespace zero
