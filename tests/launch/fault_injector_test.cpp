// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/faults/fault_injector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends.h"
#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/launch/recorded_actions.h"
#include "tests/scratch.h"

// Each fault acts at its place and only there, once.
namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Answer = FaultInjector::Answer;

constexpr int kRank = 3;

/// What the backend of a rank asks, of as many elements.
FaultInjector::Collective call(Operation operation, std::string_view purpose,
                               std::int64_t elements = 10) {
  return {.operation = operation, .purpose = purpose, .given = elements, .brought = elements};
}

/// A collective as a communicator with listeners passes it on: they hear first.
class Collectives {
 public:
  Answer meet(FaultInjector& faults, Operation operation, std::string_view purpose) {
    const CollectiveRecord record{.operation = operation, .purpose = std::string(purpose)};
    if (faults.listens()) {
      faults.submitting(record, *ranks_->implementation(), device_->communication());
    }
    return faults.alters_collectives() ? faults.alter(call(operation, purpose)) : Answer::pass;
  }

 private:
  std::unique_ptr<Device> device_ = planning::open();
  std::unique_ptr<Communicator> ranks_ = planning::communicator(kRank, 8, BackendKind::host);
};

/// A run of a rank with two units, told to an injector as the trainer, the model and the backend
/// tell of it: gathers forward and backward, reductions backward, a save behind each second step, a
/// validation behind the last.
class Told {
 public:
  explicit Told(FaultInjector& faults) : faults_(faults) {}

  void before_steps() {
    faults_.phase(-1, "start");
    meet(Operation::all_gather, "hosts of the mesh");
    faults_.phase(-1, "load");
    faults_.phase(-1, "between steps");
  }
  void step(std::int64_t step) {
    faults_.phase(step, "forward");
    for (const char* unit : {"h.0", "h.1"}) pass(unit, Phase::forward);
    faults_.phase(step, "backward");
    for (const char* unit : {"h.1", "h.0"}) {
      pass(unit, Phase::backward);
      meet(Operation::reduce_scatter, unit);
    }
    faults_.phase(step, "update");
    meet(Operation::all_reduce, "gradient norm");
    faults_.phase(step, "between steps");
    if (step % 2 == 0) faults_.phase(step, "save");
    if (step % 2 == 0) faults_.phase(step, "between steps");
  }
  void validation(std::int64_t step) {
    faults_.phase(step, "validation");
    for (const char* unit : {"h.0", "h.1"}) pass(unit, Phase::forward);
    faults_.phase(step, "between steps");
  }
  void end(std::int64_t step) { faults_.phase(step, "end"); }
  void run(std::int64_t first, std::int64_t last) {
    before_steps();
    for (std::int64_t n = first; n <= last; ++n) step(n);
    validation(last);
    end(last);
  }
  /// "skip reduce_scatter(h.0)": what collectives were answered but pass.
  const std::vector<std::string>& answers() const { return answers_; }

 private:
  void pass(const char* unit, Phase phase) {
    meet(Operation::all_gather, unit);
    faults_.unit(unit, phase);
  }
  void meet(Operation operation, const char* purpose) {
    static constexpr std::array kNames{"pass", "skip", "resize", "flip given", "flip brought"};
    const Answer answer = collectives_.meet(faults_, operation, purpose);
    if (answer == Answer::pass) return;
    answers_.push_back(std::string(kNames.at(static_cast<std::size_t>(answer))) + " " +
                       call_name(operation, purpose));
  }

  FaultInjector& faults_;
  Collectives collectives_;
  std::vector<std::string> answers_;
};

Fault at(FaultPhase phase, std::int64_t step, const std::string& unit = "") {
  return {.kind = FaultKind::kill, .rank = kRank, .step = step, .phase = phase, .unit = unit};
}

/// What one fault says when the run of four steps is told to its rank.
std::vector<std::string> said_of(const Fault& fault, int rank = kRank) {
  RecordedActions record;
  {
    FaultInjector faults({.listed = {fault}}, rank, 8, record.actions());
    Told(faults).run(1, 4);
  }
  return record.said();
}

TEST(FaultInjector, ActsAtItsPlaceAndOnlyThere) {
  using enum FaultPhase;
  const std::string kill = "run.faults: rank 3: kill at ";
  EXPECT_THAT(said_of(at(start, 0)), ElementsAre(kill + "start"));
  EXPECT_THAT(said_of(at(load, 0)), ElementsAre(kill + "load"));
  EXPECT_THAT(said_of(at(forward, 2)), ElementsAre(kill + "step 2, forward h.0"));
  EXPECT_THAT(said_of(at(forward, 2, "h.1")), ElementsAre(kill + "step 2, forward h.1"));
  EXPECT_THAT(said_of(at(backward, 3)), ElementsAre(kill + "step 3, backward h.1"));
  EXPECT_THAT(said_of(at(gather, 2, "h.1")), ElementsAre(kill + "step 2, all_gather(h.1)"));
  EXPECT_THAT(said_of(at(reduce, 2)), ElementsAre(kill + "step 2, reduce_scatter(h.1)"));
  EXPECT_THAT(said_of(at(update, 1)), ElementsAre(kill + "step 1, update"));
  EXPECT_THAT(said_of(at(validation, 1)), ElementsAre(kill + "step 4, validation"));
  EXPECT_THAT(said_of(at(end, 0)), ElementsAre(kill + "step 4, end"));
}

TEST(FaultInjector, ASaveIsTheFirstThatIsDue) {
  EXPECT_THAT(said_of(at(FaultPhase::save, 3)),
              ElementsAre("run.faults: rank 3: kill at step 4, save"));
}

TEST(FaultInjector, OtherRanksMeetNothing) {
  EXPECT_THAT(said_of(at(FaultPhase::update, 1), 2), IsEmpty());
}

TEST(FaultInjector, ACollectiveOfAnyNameIsMet) {
  Fault fault = at(FaultPhase::update, 2);
  fault.phase.reset();
  fault.kind = FaultKind::skip;
  fault.collective = "all_reduce(gradient norm)";
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
  Told told(faults);
  told.run(1, 4);
  EXPECT_THAT(told.answers(), ElementsAre("skip all_reduce(gradient norm)"));
  EXPECT_THAT(record.said(),
              ElementsAre("run.faults: rank 3: skip at step 2, all_reduce(gradient norm)"));
}

TEST(FaultInjector, AFusedUnitIsForwardAndBackward) {
  for (const FaultPhase phase : {FaultPhase::forward, FaultPhase::backward}) {
    RecordedActions record;
    FaultInjector faults({.listed = {at(phase, 1)}}, kRank, 8, record.actions());
    faults.phase(1, "forward");
    faults.unit("head", Phase::both);
    EXPECT_EQ(record.take().size(), 1U) << name_of(phase);
  }
}

TEST(FaultInjector, ValidationIsNoForward) {
  RecordedActions record;
  FaultInjector faults({.listed = {at(FaultPhase::forward, 4)}}, kRank, 8, record.actions());
  faults.phase(4, "validation");
  faults.unit("h.0", Phase::forward);
  EXPECT_THAT(record.take(), IsEmpty());
}

TEST(FaultInjector, EachKindDoesItsOwn) {
  const auto done = [](FaultKind kind) {
    Fault fault = at(FaultPhase::update, 1);
    fault.kind = kind;
    RecordedActions record;
    FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
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
  Fault fault = at(FaultPhase::backward, 2, "h.0");
  fault.kind = FaultKind::error;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
  EXPECT_EQ(error_of([&] { Told(faults).run(1, 4); }),
            "[rank 3] run.faults: thrown on purpose at step 2, backward h.0");
}

TEST(FaultInjector, CollectivesAreAnswered) {
  const auto answers = [](FaultKind kind, FaultPhase phase) {
    Fault fault = at(phase, 2, "h.0");
    fault.kind = kind;
    RecordedActions record;
    FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
    EXPECT_TRUE(faults.alters_collectives());
    Told told(faults);
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

TEST(FaultInjector, AnEmptyShareWaitsForOneWithValues) {
  Fault fault = at(FaultPhase::gather, 1);
  fault.kind = FaultKind::flip_memory;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
  faults.phase(1, "forward");
  EXPECT_EQ(faults.alter(call(Operation::all_gather, "h.0", 0)), Answer::pass);
  EXPECT_EQ(faults.alter(call(Operation::all_gather, "h.1", 5)), Answer::flip_given);
  EXPECT_EQ(faults.alter(call(Operation::all_gather, "h.1", 5)), Answer::pass);
}

TEST(FaultInjector, CollectivesAreLookedAtOnlyWhereAFaultConcernsThem) {
  // Whether the rank listens to collectives, and whether it alters any.
  const auto concerns = [](const Fault& fault, int rank) {
    RecordedActions record;
    const FaultInjector faults({.listed = {fault}}, rank, 8, record.actions());
    return std::pair(faults.listens(), faults.alters_collectives());
  };
  const Fault gather = at(FaultPhase::gather, 1);
  Fault skip = gather;
  skip.kind = FaultKind::skip;
  EXPECT_EQ(concerns(at(FaultPhase::update, 1), kRank), std::pair(false, false));
  EXPECT_EQ(concerns(gather, 0), std::pair(false, false));
  EXPECT_EQ(concerns(gather, kRank), std::pair(true, false));
  EXPECT_EQ(concerns(skip, kRank), std::pair(true, true));
}

TEST(FaultInjector, ASlowRankTakesTheFactorOfItsTime) {
  Fault fault = at(FaultPhase::forward, 1);
  fault.kind = FaultKind::slow;
  fault.factor = 10;
  fault.seconds = 25;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
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
  Fault fault = at(FaultPhase::backward, 1);
  fault.kind = FaultKind::slow_link;
  fault.delay = 0.25;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
  Collectives collectives;
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
  Fault fault = at(FaultPhase::save, 2);
  fault.kind = FaultKind::disk_full;
  RecordedActions record;
  FaultInjector faults({.listed = {fault}}, kRank, 8, record.actions());
  ASSERT_NE(faults.disk(), nullptr);
  EXPECT_NO_THROW(faults.disk()->make_folder(folder.path("a")));
  faults.phase(2, "save");
  EXPECT_THAT(error_of([&] { faults.disk()->make_folder(folder.path("b")); }),
              HasSubstr("/b: cannot create: No space left on device (run.faults: disk_full)"));
  EXPECT_THAT(folder.names(), ElementsAre("a"));
}

TEST(FaultInjector, AFaultActsOnceOverAttempts) {
  const Scratch folder;
  const FaultOptions options{.listed = {at(FaultPhase::update, 3)}, .marks = folder.path("marks")};
  for (int attempt = 0; attempt < 2; ++attempt) {
    RecordedActions record;
    FaultInjector faults(options, kRank, 8, record.actions());
    Told(faults).run(2, 4);
    EXPECT_EQ(record.take().size(), attempt == 0 ? 1U : 0U);
  }
  EXPECT_EQ(folder.read("marks/fault_0"), "run.faults: rank 3: kill at step 3, update\n");
}

TEST(FaultInjector, WithoutMarksEachAttemptMeetsTheFault) {
  EXPECT_EQ(said_of(at(FaultPhase::update, 3)).size(), 1U);
  EXPECT_EQ(said_of(at(FaultPhase::update, 3)).size(), 1U);
}

TEST(FaultInjector, AnAttemptBehindTheStepDoesNotMeetIt) {
  for (const FaultPhase phase : {FaultPhase::update, FaultPhase::save}) {
    RecordedActions record;
    {
      FaultInjector faults({.listed = {at(phase, 3)}}, kRank, 8, record.actions());
      Told(faults).run(5, 6);
    }
    EXPECT_THAT(record.take(), IsEmpty());
    EXPECT_THAT(record.said(), IsEmpty());
  }
}

TEST(FaultInjector, AFaultWithoutAPlaceIsTold) {
  EXPECT_THAT(said_of(at(FaultPhase::backward, 2, "h.9")),
              ElementsAre("run.faults: rank 3: kill did not act: there was no backward of h.9 at "
                          "step 2; zero_train --plan --schedule names the units and what they "
                          "gather and reduce"));
}

TEST(FaultInjector, MarksThatCannotBeMadeAreAnError) {
  const Scratch folder;
  const std::string file = folder.write("marks", "");
  EXPECT_THAT(error_of([&] {
                FaultInjector({.listed = {at(FaultPhase::update, 1)}, .marks = file}, 0, 1);
              }),
              HasSubstr("run.fault_marks: " + file));
  const FaultMarks marks(folder.path("gone"));
  std::filesystem::remove(folder.path("gone"));
  EXPECT_THAT(error_of([&] { marks.leave("fault_0", "x"); }),
              HasSubstr("gone/fault_0: cannot be made: No such file or directory; give a folder"));
}

/// Steps of a second each, told to all ranks of a job on one clock; gives who was killed when.
std::vector<std::string> drawn_kills(const FaultOptions& options, int world, int seconds) {
  RecordedActions record;
  std::vector<std::unique_ptr<FaultInjector>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(std::make_unique<FaultInjector>(options, rank, world, record.actions()));
  }
  for (std::int64_t second = 1; second <= seconds; ++second) {
    for (auto& rank : ranks) Told(*rank).step(second);
    record.pass(1);
  }
  return record.said();
}

TEST(FaultInjector, DrawnFaultsActOneByOneOverRanksAndAttempts) {
  const Scratch folder;
  const FaultOptions options{
      .drawn = DrawnFaults{.seed = 3, .every = 10, .kinds = {FaultKind::kill}},
      .marks = folder.path("marks")};
  EXPECT_THAT(drawn_kills(options, 4, 9), IsEmpty());
  const std::vector<std::string> first = drawn_kills(options, 4, 31);
  ASSERT_EQ(first.size(), 3U);
  for (std::int64_t n = 0; n < 3; ++n) {
    const Fault fault = drawn_fault(*options.drawn, n, 4);
    EXPECT_THAT(first[static_cast<std::size_t>(n)],
                HasSubstr(fmt::format("rank {}: kill at step {},", fault.rank, 10 * (n + 1) + 1)));
  }
  EXPECT_THAT(folder.names(), ElementsAre("marks"));
  const std::vector<std::string> second = drawn_kills(options, 4, 11);
  ASSERT_EQ(second.size(), 1U);  // number 3, ten seconds behind the start of its attempt
  EXPECT_THAT(second[0], HasSubstr(fmt::format("rank {}: kill at step 11,",
                                               drawn_fault(*options.drawn, 3, 4).rank)));
  EXPECT_EQ(FaultMarks(folder.path("marks")).next_number("drawn"), 4);
}

TEST(FaultInjector, RanksThatAreThreadsCannotBeKilled) {
  TrainConfig config = config_with({"run.device=cpu", "run.threads=1"}, 2);
  config.run.faults.listed = {{.kind = FaultKind::kill, .step = 1, .phase = FaultPhase::update}};
  local::run(2, [&](Communicator& communicator) {
    TrainConfig own = config;
    const std::string error = error_of([&] { make_fault_injector(own, communicator); });
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
