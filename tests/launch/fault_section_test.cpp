// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "device/device.h"
#include "tests/launch/config_with.h"
#include "tests/launch/environment_of.h"
#include "tests/variable.h"

// The key run.faults: which faults there are, and what is refused.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

FaultSetting allowed(int world = 8) {
  return {.world = world,
          .device = DeviceKind::cpu,
          .memory_is_limited = true,
          .environment = environment_of({{"ZERO_ALLOW_FAULTS", "1"}})};
}

FaultOptions made(const std::string& faults, const FaultSetting& setting = allowed(),
                  std::vector<std::string> more = {}) {
  if (!faults.empty()) more.push_back("run.faults=" + faults);
  Configuration values = Configuration::from_json(
      parse_json_text(R"({"data": {"train": "a.bin"}})", "c.json"), "c.json", more);
  Refusals refusals;
  FaultOptions options = make_faults(values, setting, refusals);
  refusals.raise(values);
  return options;
}

std::string refused(const std::string& faults, const FaultSetting& setting = allowed()) {
  return error_of([&] { made(faults, setting); });
}

/// A fault with these members beside a rank.
std::string fault(const std::string& members) { return R"([{"rank": 3, )" + members + "}]"; }

TEST(FaultSection, NothingIsAskedForByDefault) {
  FaultSetting setting = allowed();
  setting.environment = {};
  EXPECT_TRUE(made("", setting).empty());
}

TEST(FaultSection, FaultsAreRefusedWithoutTheVariable) {
  FaultSetting setting = allowed();
  setting.environment = [](const std::string&) { return std::optional<std::string>("0"); };
  EXPECT_THAT(refused("[]", setting),
              HasSubstr("c.json: run.faults makes ranks fail on purpose, and ZERO_ALLOW_FAULTS is "
                        "not 1; set it in the environment of all ranks, or leave run.faults out"));
}

TEST(FaultSection, AFileIsRefusedWithItsAnswer) {
  const std::string text =
      R"({"model": "gpt2-124m", "data": {"train": "a.bin"}, "train_batch_size": 8,
          "run": {"faults": [{"kind": "kill", "rank": 0, "step": 1, "phase": "update"}]}})";
  const std::string error = error_of([&] {
    make_train_config(Configuration::from_json(parse_json_text(text, "c.json"), "c.json",
                                               {"run.threads=1", "run.device=cpu"}),
                      1);
  });
  EXPECT_THAT(error, AllOf(HasSubstr("ZERO_ALLOW_FAULTS"), HasSubstr("--set run.faults=null")));
}

TEST(FaultSection, AFaultHasItsPlaceAndItsDefaults) {
  const FaultOptions options =
      made(R"json([{"kind": "kill", "rank": 3, "step": 7, "phase": "backward", "unit": "h.1"},
               {"kind": "slow", "rank": 0, "step": 2, "phase": "forward"},
               {"kind": "skip", "rank": 1, "step": 4, "collective": "reduce_scatter(h.0)"},
               {"kind": "throw", "rank": 7, "phase": "load"}])json");
  ASSERT_EQ(options.listed.size(), 4U);
  const Fault& first = options.listed[0];
  EXPECT_EQ(first.kind, FaultKind::kill);
  EXPECT_EQ(first.rank, 3);
  EXPECT_EQ(first.step, 7);
  EXPECT_EQ(first.phase, FaultPhase::backward);
  EXPECT_EQ(first.unit, "h.1");
  EXPECT_EQ(options.listed[1].factor, 2);
  EXPECT_EQ(options.listed[1].seconds, 0);
  EXPECT_EQ(options.listed[2].collective, "reduce_scatter(h.0)");
  EXPECT_FALSE(options.listed[2].phase.has_value());
  EXPECT_EQ(options.listed[3].step, 0);
  EXPECT_EQ(options.listed[3].kind, FaultKind::error);
  EXPECT_FALSE(options.drawn.has_value());
}

TEST(FaultSection, FactorDelayAndSecondsAreOfTheirKinds) {
  const FaultOptions options = made(
      R"([{"kind": "slow", "rank": 0, "step": 2, "phase": "forward", "factor": 10, "seconds": 3},
          {"kind": "slow_link", "rank": 0, "step": 2, "phase": "forward", "delay": 0.5},
          {"kind": "disk_full", "rank": 0, "step": 2, "phase": "save", "seconds": 1}])");
  EXPECT_EQ(options.listed[0].factor, 10);
  EXPECT_EQ(options.listed[0].seconds, 3);
  EXPECT_EQ(options.listed[1].delay, 0.5);
  EXPECT_EQ(options.listed[2].seconds, 1);
  const std::string at = R"("step": 2, "phase": "forward", )";
  EXPECT_THAT(refused(fault(at + R"("kind": "kill", "factor": 2)")),
              HasSubstr("c.json: run.faults[0]: factor is of slow, and the kind is \"kill\""));
  EXPECT_THAT(refused(fault(at + R"("kind": "slow", "delay": 2)")),
              HasSubstr("delay is of slow_link, and the kind is \"slow\""));
  EXPECT_THAT(refused(fault(at + R"("kind": "stop", "seconds": 2)")),
              HasSubstr("seconds is of slow, slow_link and disk_full, and the kind is \"stop\""));
  EXPECT_THAT(refused(fault(at + R"("kind": "slow", "factor": 0.5)")),
              HasSubstr("factor is 0.5, expected a number from 1 to 1000"));
}

TEST(FaultSection, UnknownNamesAreRefusedWithTheNearest) {
  EXPECT_THAT(refused(fault(R"("kind": "kil", "step": 1, "phase": "update")")),
              AllOf(HasSubstr("run.faults[0]: kind is \"kil\": did you mean kill?"),
                    HasSubstr("Expected one of kill, stop, segv, throw,")));
  EXPECT_THAT(refused(fault(R"("kind": 3, "step": 1, "phase": "update")")),
              HasSubstr("kind is 3. Expected one of kill"));
  EXPECT_THAT(refused(fault(R"("kind": "kill", "step": 1, "phase": "backwards")")),
              HasSubstr("phase is \"backwards\": did you mean backward? Expected one of start,"));
  EXPECT_THAT(refused(fault(R"("kind": "kill", "step": 1, "phas": "update")")),
              HasSubstr("has no key \"phas\": did you mean phase? It has the keys kind, rank,"));
}

TEST(FaultSection, WhatIsMissingIsNamed) {
  EXPECT_THAT(refused(fault(R"("step": 1, "phase": "update")")), HasSubstr("has no kind"));
  EXPECT_THAT(refused(R"([{"kind": "kill", "step": 1, "phase": "update"}])"),
              HasSubstr("has no rank; expected the rank that fails, from 0 to 7"));
  EXPECT_THAT(refused(fault(R"("kind": "kill", "phase": "update")")),
              HasSubstr("has no step; expected an optimizer step from 1 to run.steps, 100"));
  EXPECT_THAT(refused(fault(R"("kind": "kill", "step": 1)")),
              AllOf(HasSubstr("has no phase; give \"phase\": one of start, load, gather,"),
                    HasSubstr(R"json(, or "collective": "reduce_scatter(h.1)")json")));
  EXPECT_THAT(refused("[7]"), HasSubstr("run.faults[0]: found 7, expected an object such as {"));
  EXPECT_THAT(refused("7"), HasSubstr("run.faults: found 7, expected a list of faults, or"));
}

TEST(FaultSection, NumbersAreHeldToTheRun) {
  const std::string rest = R"("kind": "kill", "phase": "update")";
  EXPECT_THAT(refused(R"([{"rank": 8, "step": 1, )" + rest + "}]"),
              HasSubstr("rank is 8, expected a number from 0 to 7"));
  EXPECT_THAT(refused(R"([{"rank": 1.5, "step": 1, )" + rest + "}]"),
              HasSubstr("rank is 1.5, expected a whole number"));
  EXPECT_THAT(refused(fault(R"("step": 0, )" + rest)),
              HasSubstr("step is 0, expected a number from 1 to 100"));
  EXPECT_THAT(refused(fault(R"("step": 101, )" + rest)),
              HasSubstr("step is 101, expected a number from 1 to 100"));
  EXPECT_THAT(refused(fault(R"("kind": "kill", "phase": "load", "step": 1)")),
              HasSubstr("step is given, and the phase \"load\" comes once in a run; leave it out"));
}

TEST(FaultSection, ThePlaceFitsTheKind) {
  EXPECT_THAT(refused(fault(R"("kind": "skip", "step": 1, "phase": "update")")),
              HasSubstr("kind \"skip\" is of a collective, and the phase is \"update\"; expected "
                        "phase gather or reduce, or a collective"));
  EXPECT_THAT(refused(fault(R"("kind": "kill", "step": 1, "phase": "save", "unit": "h.0")")),
              HasSubstr("unit is \"h.0\", and the phase \"save\" is of no unit; leave it out"));
  EXPECT_THAT(refused(fault(R"("kind": "skip", "step": 1, "collective": "h.0")")),
              HasSubstr("collective is \"h.0\", expected a call as errors name it"));
  EXPECT_THAT(
      refused(fault(R"json("kind": "resize", "step": 1, "collective": "barrier(end)")json")),
      HasSubstr("kind \"resize\" needs values, and a barrier has none"));
  EXPECT_EQ(refused(fault(R"json("kind": "skip", "step": 1, "collective": "barrier(end)")json")),
            "no error");
}

TEST(FaultSection, TheUnitIsTheModels) {
  FaultSetting setting = allowed();
  setting.units = {"embedding", "h.0", "h.1", "ln_f"};
  const auto of_unit = [](const std::string& unit) {
    return fault(R"("kind": "kill", "step": 1, "phase": "backward", "unit": ")" + unit + "\"");
  };
  EXPECT_THAT(refused(of_unit("h.77"), setting),
              AllOf(HasSubstr("run.faults[0]: unit is \"h.77\""),
                    HasSubstr("The model has 4 units, embedding to ln_f; zero_train --plan "
                              "--schedule names them")));
  EXPECT_EQ(refused(of_unit("h.1"), setting), "no error");
  EXPECT_EQ(made(of_unit("h.1"), setting).units, setting.units);
}

TEST(FaultSection, TheUnitsAreThoseOfTheConfiguredModel) {
  const Variable allow("ZERO_ALLOW_FAULTS=1");
  const auto of_unit = [](const std::string& unit) {
    return config_with({"run.device=cpu", "run.threads=1",
                        R"(run.faults=[{"kind": "kill", "rank": 0, "step": 1, "phase": "gather", )"
                        R"("unit": ")" +
                            unit + R"("}])"})
        .run.faults.units;
  };
  EXPECT_THAT(error_of([&] { of_unit("h.77"); }), HasSubstr("unit is \"h.77\""));
  EXPECT_THAT(of_unit("h.1"), ::testing::IsSupersetOf({"embedding", "h.0", "h.1"}));
}

TEST(FaultSection, WhatTheMachineCannotDoIsRefusedByName) {
  FaultSetting gpu = allowed();
  gpu.device = DeviceKind::cuda;
  for (const std::string kind : {"slow", "flip_memory", "flip_wire"}) {
    EXPECT_THAT(refused(fault(R"("step": 1, "phase": "gather", "kind": ")" + kind + "\""), gpu),
                HasSubstr("kind \"" + kind +
                          "\" acts on what the host computes, and run.device is "
                          "\"cuda\""));
  }
  FaultSetting free = allowed();
  free.memory_is_limited = false;
  const std::string out = fault(R"("step": 1, "phase": "update", "kind": "out_of_memory")");
  EXPECT_THAT(refused(out, free), HasSubstr("none limits this process's"));
  EXPECT_EQ(refused(out), "no error");
}

TEST(FaultSection, AllThatIsWrongIsTold) {
  const std::string error = refused(R"([{"kind": "kill", "rank": 9, "step": 1, "phase": "update"},
      {"kind": "kill", "rank": 0, "step": 1, "phase": "update"},
      {"kind": "stopp", "rank": 0, "step": 1, "phase": "update"}])");
  EXPECT_THAT(error, AllOf(HasSubstr("run.faults[0]: rank"), HasSubstr("run.faults[2]: kind"),
                           Not(HasSubstr("run.faults[1]"))));
}

TEST(FaultSection, MarksAreBesideTheCheckpoints) {
  const std::string kill = fault(R"("kind": "kill", "step": 1, "phase": "update")");
  EXPECT_EQ(made(kill).marks, "");
  EXPECT_EQ(made(kill, allowed(), {"run.checkpoint.folder=runs/a/"}).marks, "runs/a.faults");
  EXPECT_EQ(made(kill, allowed(), {"run.checkpoint.folder=a", "run.fault_marks=b"}).marks, "b");
  EXPECT_THAT(error_of([] { made("", allowed(), {"run.fault_marks=b"}); }),
              HasSubstr("c.json: run.fault_marks is given, but run.faults is not"));
}

TEST(FaultSection, DrawnFaultsHaveASeedAndATime) {
  const FaultOptions options = made(R"({"seed": 5, "every": 15})");
  ASSERT_TRUE(options.drawn.has_value());
  EXPECT_EQ(options.drawn->seed, 5U);
  EXPECT_EQ(options.drawn->every, 15);
  EXPECT_EQ(options.drawn->kinds.size(), kFaultKinds.size() - 1);
  EXPECT_EQ(std::ranges::count(options.drawn->kinds, FaultKind::out_of_memory), 0);
  EXPECT_THAT(made(R"({"seed": 5, "every": 15, "kinds": ["kill", "loop"]})").drawn->kinds,
              ElementsAre(FaultKind::kill, FaultKind::loop));
  FaultSetting gpu = allowed();
  gpu.device = DeviceKind::cuda;
  const FaultOptions on_gpu = made(R"({"seed": 5, "every": 15})", gpu);
  EXPECT_EQ(std::ranges::count(on_gpu.drawn->kinds, FaultKind::flip_wire), 0);
  EXPECT_EQ(std::ranges::count(on_gpu.drawn->kinds, FaultKind::kill), 1);
}

TEST(FaultSection, DrawnFaultsAreHeldToTheirKeys) {
  EXPECT_THAT(refused(R"({"every": 15})"), HasSubstr("run.faults: has no seed"));
  EXPECT_THAT(refused(R"({"seed": 1})"), HasSubstr("run.faults: has no every; expected the sec"));
  EXPECT_THAT(refused(R"({"seed": 1, "every": 0})"), HasSubstr("every is 0, expected a number"));
  EXPECT_THAT(refused(R"({"seed": 1, "every": 1, "rank": 3})"), HasSubstr("has no key \"rank\""));
  EXPECT_THAT(refused(R"({"seed": 1, "every": 1, "kinds": []})"),
              HasSubstr("kinds is [], expected a list of some of kill,"));
  EXPECT_THAT(refused(R"({"seed": 1, "every": 1, "kinds": ["kil"]})"),
              HasSubstr("kind is \"kil\": did you mean kill?"));
}

TEST(DrawnFaults, AreAlikeOnAllRanksAndCoverAllKindsRanksAndPhases) {
  DrawnFaults drawn{.seed = 7, .every = 2, .saves = true};
  for (std::size_t i = 0; i < kFaultKinds.size(); ++i) {
    drawn.kinds.push_back(static_cast<FaultKind>(i));
  }
  std::set<FaultKind> kinds;
  std::set<int> ranks;
  std::set<FaultPhase> phases;
  for (std::int64_t n = 0; n < 1000; ++n) {
    const Fault one = drawn_fault(drawn, n, 8);
    const Fault again = drawn_fault(drawn, n, 8);
    EXPECT_EQ(text_of(one), text_of(again));
    EXPECT_EQ(one.rank, again.rank);
    EXPECT_EQ(one.phase, again.phase);
    ASSERT_TRUE(one.phase.has_value());
    if (needs_collective(one.kind)) {
      EXPECT_TRUE(one.phase == FaultPhase::gather || one.phase == FaultPhase::reduce);
    }
    kinds.insert(one.kind);
    ranks.insert(one.rank);
    phases.insert(*one.phase);
  }
  EXPECT_EQ(kinds.size(), kFaultKinds.size());
  EXPECT_EQ(ranks.size(), 8U);
  EXPECT_EQ(phases, (std::set{FaultPhase::gather, FaultPhase::forward, FaultPhase::backward,
                              FaultPhase::reduce, FaultPhase::update, FaultPhase::save}));
  DrawnFaults other = drawn;
  other.seed = 8;
  int differ = 0;
  for (std::int64_t n = 0; n < 100; ++n) {
    differ += drawn_fault(drawn, n, 8).kind != drawn_fault(other, n, 8).kind ? 1 : 0;
  }
  EXPECT_GT(differ, 50);
}

TEST(DrawnFaults, ARunWithoutSavesHasNoneInASave) {
  const DrawnFaults drawn{.seed = 7, .every = 2, .kinds = {FaultKind::kill}};
  for (std::int64_t n = 0; n < 200; ++n) {
    EXPECT_NE(drawn_fault(drawn, n, 8).phase, FaultPhase::save);
  }
}

}  // namespace
}  // namespace zero::testing
