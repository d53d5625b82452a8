// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_injector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "launch/process/configuration_error.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/launch/recorded_actions.h"
#include "tests/launch/told_faults.h"
#include "tests/scratch.h"

// Each fault acts at its place and only there, once.
namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Answer = FaultInjector::Answer;

/// What one fault says when the run of four steps is told to its rank.
std::vector<std::string> said_of(const Fault& fault, int rank = kFaultyRank) {
  RecordedActions record;
  {
    FaultInjector faults({.listed = {fault}}, rank, 8, record.actions());
    ToldFaults(faults).run(1, 4);
  }
  return record.said();
}

TEST(FaultInjector, ActsAtItsPlaceAndOnlyThere) {
  using enum FaultPhase;
  const std::string kill = "run.faults: rank 3: kill at ";
  EXPECT_THAT(said_of(kill_at(start, 0)), ElementsAre(kill + "start"));
  EXPECT_THAT(said_of(kill_at(load, 0)), ElementsAre(kill + "load"));
  EXPECT_THAT(said_of(kill_at(forward, 2)), ElementsAre(kill + "step 2, forward h.0"));
  EXPECT_THAT(said_of(kill_at(forward, 2, "h.1")), ElementsAre(kill + "step 2, forward h.1"));
  EXPECT_THAT(said_of(kill_at(backward, 3)), ElementsAre(kill + "step 3, backward h.1"));
  EXPECT_THAT(said_of(kill_at(gather, 2, "h.1")), ElementsAre(kill + "step 2, all_gather(h.1)"));
  EXPECT_THAT(said_of(kill_at(reduce, 2)), ElementsAre(kill + "step 2, reduce_scatter(h.1)"));
  EXPECT_THAT(said_of(kill_at(update, 1)), ElementsAre(kill + "step 1, update"));
  EXPECT_THAT(said_of(kill_at(validation, 1)), ElementsAre(kill + "step 4, validation"));
  EXPECT_THAT(said_of(kill_at(end, 0)), ElementsAre(kill + "step 4, end"));
}

TEST(FaultInjector, ASaveIsTheFirstThatIsDue) {
  EXPECT_THAT(said_of(kill_at(FaultPhase::save, 3)),
              ElementsAre("run.faults: rank 3: kill at step 4, save"));
}

TEST(FaultInjector, OtherRanksMeetNothing) {
  EXPECT_THAT(said_of(kill_at(FaultPhase::update, 1), 2), IsEmpty());
}

TEST(FaultInjector, ACollectiveOfAnyNameIsMet) {
  Fault fault = kill_at(FaultPhase::update, 2);
  fault.phase.reset();
  fault.kind = FaultKind::skip;
  fault.collective = "all_reduce(gradient norm)";
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
  ToldFaults told(faults);
  told.run(1, 4);
  EXPECT_THAT(told.answers(), ElementsAre("skip all_reduce(gradient norm)"));
  EXPECT_THAT(record.said(),
              ElementsAre("run.faults: rank 3: skip at step 2, all_reduce(gradient norm)"));
}

TEST(FaultInjector, AFusedUnitIsForwardAndBackward) {
  for (const FaultPhase phase : {FaultPhase::forward, FaultPhase::backward}) {
    RecordedActions record;
    FaultInjector faults({.listed = {kill_at(phase, 1)}}, kFaultyRank, 8, record.actions());
    faults.phase(1, "forward");
    faults.unit("head", Phase::both);
    EXPECT_EQ(record.take().size(), 1U) << name_of(phase);
  }
}

TEST(FaultInjector, ValidationIsNoForward) {
  RecordedActions record;
  FaultInjector faults({.listed = {kill_at(FaultPhase::forward, 4)}}, kFaultyRank, 8,
                       record.actions());
  faults.phase(4, "validation");
  faults.unit("h.0", Phase::forward);
  EXPECT_THAT(record.take(), IsEmpty());
}

TEST(FaultInjector, EachKindDoesItsOwn) {
  const auto done = [](FaultKind kind) {
    Fault fault = kill_at(FaultPhase::update, 1);
    fault.kind = kind;
    RecordedActions record;
    FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
    faults.phase(1, "forward");
    faults.phase(1, "update");
    return record.take();
  };
  EXPECT_THAT(done(FaultKind::kill), ElementsAre(fmt::format("signal {}", SIGKILL)));
  EXPECT_THAT(done(FaultKind::stop), ElementsAre(fmt::format("signal {}", SIGSTOP)));
  EXPECT_THAT(done(FaultKind::segv), ElementsAre(fmt::format("signal {}", SIGSEGV)));
  EXPECT_THAT(done(FaultKind::loop), ElementsAre("loop"));
  EXPECT_THAT(done(FaultKind::cut), ElementsAre("cut"));
  EXPECT_THAT(done(FaultKind::out_of_memory), ElementsAre("fill memory"));
}

TEST(FaultInjector, ThrowEndsTheCallWithItsPlace) {
  Fault fault = kill_at(FaultPhase::backward, 2, "h.0");
  fault.kind = FaultKind::error;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
  EXPECT_EQ(error_of([&] { ToldFaults(faults).run(1, 4); }),
            "[rank 3] run.faults: thrown on purpose at step 2, backward h.0");
}

TEST(FaultInjector, CollectivesAreAnswered) {
  const auto answers = [](FaultKind kind, FaultPhase phase) {
    Fault fault = kill_at(phase, 2, "h.0");
    fault.kind = kind;
    RecordedActions record;
    FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
    EXPECT_TRUE(faults.alters_collectives());
    ToldFaults told(faults);
    told.run(1, 4);
    return told.answers();
  };
  EXPECT_THAT(answers(FaultKind::skip, FaultPhase::gather), ElementsAre("skip all_gather(h.0)"));
  EXPECT_THAT(answers(FaultKind::resize, FaultPhase::reduce),
              ElementsAre("resize reduce_scatter(h.0)"));
  EXPECT_THAT(answers(FaultKind::flip_memory, FaultPhase::reduce),
              ElementsAre("flip given reduce_scatter(h.0)"));
  EXPECT_THAT(answers(FaultKind::flip_wire, FaultPhase::gather),
              ElementsAre("flip brought all_gather(h.0)"));
}

// As run.check_collectives sums: the ranks exchange what is to be summed.
TEST(FaultInjector, AReductionThatIsTakenApartIsMetInItsExchange) {
  Fault fault = kill_at(FaultPhase::reduce, 2, "h.0");
  fault.kind = FaultKind::flip_wire;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
  faults.phase(2, "forward");
  EXPECT_EQ(faults.alter(backend_call(Operation::all_to_all, "h.0")), Answer::pass);
  faults.phase(2, "backward");
  EXPECT_EQ(faults.alter(backend_call(Operation::all_to_all, "h.0")), Answer::flip_brought);
}

// As run.check_collectives sums the gradient norm, and compares a gather.
TEST(FaultInjector, AGatherIsAUnits) {
  Fault fault = kill_at(FaultPhase::gather, 2);
  fault.kind = FaultKind::flip_wire;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}, .units = {"h.0", "h.1"}}, kFaultyRank, 8,
                       record.actions());
  faults.phase(2, "update");
  for (const char* purpose : {"gradient norm and loss", "h.1, checksums"}) {
    EXPECT_EQ(faults.alter(backend_call(Operation::all_gather, purpose)), Answer::pass) << purpose;
  }
  EXPECT_EQ(faults.alter(backend_call(Operation::all_gather, "h.1")), Answer::flip_brought);
}

TEST(FaultInjector, AnEmptyShareWaitsForOneWithValues) {
  Fault fault = kill_at(FaultPhase::gather, 1);
  fault.kind = FaultKind::flip_memory;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
  faults.phase(1, "forward");
  EXPECT_EQ(faults.alter(backend_call(Operation::all_gather, "h.0", 0)), Answer::pass);
  EXPECT_EQ(faults.alter(backend_call(Operation::all_gather, "h.1", 5)), Answer::flip_given);
  EXPECT_EQ(faults.alter(backend_call(Operation::all_gather, "h.1", 5)), Answer::pass);
}

TEST(FaultInjector, CollectivesAreLookedAtOnlyWhereAFaultConcernsThem) {
  // Whether the rank listens to collectives, and whether it alters any.
  const auto concerns = [](const Fault& fault, int rank) {
    RecordedActions record;
    const FaultInjector faults({.listed = {fault}}, rank, 8, record.actions());
    return std::pair(faults.listens(), faults.alters_collectives());
  };
  const Fault gather = kill_at(FaultPhase::gather, 1);
  Fault skip = gather;
  skip.kind = FaultKind::skip;
  EXPECT_EQ(concerns(kill_at(FaultPhase::update, 1), kFaultyRank), std::pair(false, false));
  EXPECT_EQ(concerns(gather, 0), std::pair(false, false));
  EXPECT_EQ(concerns(gather, kFaultyRank), std::pair(true, false));
  EXPECT_EQ(concerns(skip, kFaultyRank), std::pair(true, true));
}

TEST(FaultInjector, ASlowRankTakesTheFactorOfItsTime) {
  Fault fault = kill_at(FaultPhase::forward, 1);
  fault.kind = FaultKind::slow;
  fault.factor = 10;
  fault.seconds = 25;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
  faults.phase(1, "forward");
  faults.unit("h.0", Phase::forward);
  record.pass(2);
  faults.unit("h.1", Phase::forward);
  EXPECT_THAT(record.take(), ElementsAre("sleep 18.000"));
  record.pass(6);  // the fault is over
  faults.unit("h.1", Phase::backward);
  EXPECT_THAT(record.take(), IsEmpty());
}

TEST(FaultInjector, ASlowLinkDelaysEachCollectiveFromThenOn) {
  Fault fault = kill_at(FaultPhase::backward, 1);
  fault.kind = FaultKind::slow_link;
  fault.delay = 0.25;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
  ToldCollectives collectives;
  faults.phase(1, "forward");
  collectives.meet(faults, Operation::all_gather, "h.0");
  EXPECT_THAT(record.take(), IsEmpty());
  faults.unit("h.0", Phase::backward);
  collectives.meet(faults, Operation::reduce_scatter, "h.0");
  collectives.meet(faults, Operation::all_reduce, "gradient norm");
  EXPECT_THAT(record.take(), ElementsAre("sleep 0.250", "sleep 0.250"));
}

TEST(FaultInjector, AFullDiskIsFullFromItsPlaceOn) {
  const Scratch folder;
  Fault fault = kill_at(FaultPhase::save, 2);
  fault.kind = FaultKind::disk_full;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kFaultyRank, 8, record.actions());
  ASSERT_NE(faults.disk(), nullptr);
  EXPECT_NO_THROW(faults.disk()->make_folder(folder.path("a")));
  faults.phase(2, "save");
  EXPECT_THAT(error_of([&] { faults.disk()->make_folder(folder.path("b")); }),
              HasSubstr("/b: cannot create: No space left on device (run.faults: disk_full)"));
  EXPECT_THAT(folder.names(), ElementsAre("a"));
}

TEST(FaultInjector, AFaultWithoutAPlaceIsTold) {
  EXPECT_THAT(said_of(kill_at(FaultPhase::backward, 2, "h.9")),
              ElementsAre("run.faults: rank 3: kill did not act: there was no backward of h.9 at "
                          "step 2; zero_train --plan --schedule names the units and what they "
                          "gather and reduce"));
}

TEST(FaultInjector, RanksThatAreThreadsCannotBeKilled) {
  TrainConfig config = config_with({"run.device=cpu", "run.threads=1"}, 2);
  config.run.faults.listed = {{.kind = FaultKind::kill, .step = 1, .phase = FaultPhase::update}};
  local::run(2, [&](Communicator& communicator) {
    TrainConfig own = config;
    std::string error;
    try {
      make_fault_injector(own, communicator);
    } catch (const ConfigurationError& refused) {  // such a start fails again
      error = refused.what();
    }
    ZERO_CHECK(error ==
                   "run.faults: kill is of a whole process, and this one has all 2 ranks as "
                   "threads; start them as processes: mpirun -np 2 zero_train",
               "found: {}", error);
    own.run.faults.listed[0].kind = FaultKind::disk_full;
    const auto faults = make_fault_injector(own, communicator);
    const bool fills = communicator.rank() == 0;
    ZERO_CHECK((own.checkpoints.disk != nullptr) == fills, "checkpoints");
    ZERO_CHECK((own.engine.tiers.file.disk != nullptr) == fills, "tiers");
    own.run.faults = {};
    ZERO_CHECK(make_fault_injector(own, communicator) == nullptr, "no faults are asked for");
  });
}

}  // namespace
}  // namespace zero::testing
