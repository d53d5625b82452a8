// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_ladder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/cgroup.h"
#include "base/checked_math.h"
#include "collectives/backends.h"
#include "launch/train/memory_fit.h"
#include "launch/train/tier_lines.h"
#include "tests/launch/config_with.h"
#include "tests/launch/tier_keys.h"

// "auto" as a device of offload_optimizer and offload_param. Limits are those of plans.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kThreads = BackendKind::local;

/// A model of several blocks, at stage 3.
TrainConfig deep(const Overrides& keys, int world = 1) {
  const Overrides model{"run.device=cpu",
                        "run.threads=1",
                        "model.width=256",
                        "model.layers=8",
                        "bf16.enabled=true",
                        "zero_optimization.stage=3",
                        "zero_optimization.stage3_param_persistence_threshold=1000"};
  return config_with(plus(plus(model, small_windows()), keys), world);
}

const Overrides kStatesInFile{kOffloadOptimizer + "device=nvme",
                              kOffloadOptimizer + "nvme_path=/nowhere"};
const Overrides kAllInFile = plus(kStatesInFile, {kOffloadParam + "device=nvme"});

std::int64_t bytes_of(const TrainConfig& config) { return planned_rank_bytes(config, kThreads); }
std::int64_t bytes_with(const Overrides& keys) { return bytes_of(deep(keys)); }

const Overrides kAuto{kOffloadOptimizer + "device=auto", kOffloadOptimizer + "nvme_path=/nowhere",
                      kOffloadParam + "device=auto"};

/// What has been chosen, with the memory that was returned.
struct Chosen {
  TrainConfig config;
  RankPlans plans;
};
Chosen chosen_of(TrainConfig config, const RankRoom& machine = {}) {
  RankPlans plans = fit_memory(config, kThreads, machine);
  return {std::move(config), std::move(plans)};
}
Chosen chosen_with(const Overrides& keys, const RankRoom& machine = {}) {
  return chosen_of(deep(keys), machine);
}

/// That the plan is the chosen run's, fits to the byte, and is no refusal.
void expect_fits(const Chosen& chosen, std::int64_t limit) {
  EXPECT_EQ(chosen.plans, plan_ranks(chosen.config, kThreads));
  EXPECT_LE(planned_rank_bytes(chosen.plans), limit);
  EXPECT_NO_THROW(check_memory_limit(chosen.config, kThreads, chosen.plans));
}

TEST(TierLadder, LeavesWhatFitsInMemory) {
  const std::int64_t all = bytes_with({});
  const Chosen chosen = chosen_with(plus(kAuto, limited_to(all)));
  EXPECT_FALSE(uses_file(chosen.config.engine.tiers));
  EXPECT_EQ(planned_rank_bytes(chosen.plans), all);
  expect_fits(chosen, all);
  for (const std::string& section : {kOffloadOptimizer, kOffloadParam}) {
    const Configuration::Value& device = chosen.config.values.at(section + "device");
    EXPECT_EQ(device.value, "none");
    EXPECT_THAT(device.source,
                AllOf(StartsWith("auto: a rank takes "), HasSubstr("(run.memory_limit)")));
  }
}

TEST(TierLadder, MovesAsManyOptimizerStatesAsItMust) {
  const std::int64_t all = bytes_with({});
  const std::int64_t without_states = bytes_with(kStatesInFile);
  ASSERT_LT(without_states, all);
  for (const std::int64_t limit :
       {all - 1, (all + without_states) / 2, without_states + 1, without_states}) {
    SCOPED_TRACE(limit);
    const Chosen chosen = chosen_with(plus(kAuto, limited_to(limit)));
    const TierOptions& tiers = chosen.config.engine.tiers;
    EXPECT_EQ(tiers.optimizer, Tier::file);
    EXPECT_EQ(tiers.parameters, Tier::device);
    EXPECT_EQ(tiers.file.folder, "/nowhere");
    expect_fits(chosen, limit);
    EXPECT_GT(at(chosen.plans.at(0).file, MemoryClass::optimizer), 0);
    TrainConfig less = chosen.config;
    less.engine.tiers.optimizer_ratio -= 0.001;
    EXPECT_GT(bytes_of(less), limit);
    const Configuration& values = chosen.config.values;
    EXPECT_EQ(values.text(kOffloadOptimizer + "device"), "nvme");
    EXPECT_EQ(values.number(kOffloadOptimizer + "ratio"), tiers.optimizer_ratio);
    EXPECT_EQ(values.text(kOffloadParam + "device"), "none");
    // The keys that are shown mean the same when they are given.
    const TrainConfig given = deep(
        plus(kStatesInFile, {fmt::format("{}ratio={}", kOffloadOptimizer, tiers.optimizer_ratio)}));
    EXPECT_EQ(plan_ranks(given, kThreads), chosen.plans);
  }
  const Chosen some = chosen_with(plus(kAuto, limited_to((all + without_states) / 2)));
  EXPECT_GT(at(some.plans.at(0).ledger, MemoryClass::optimizer), 0);
}

TEST(TierLadder, ThenMovesAsManyParametersAsItMust) {
  const std::int64_t without_states = bytes_with(kStatesInFile);
  const std::int64_t least = bytes_with(kAllInFile);
  ASSERT_LT(least, without_states);
  for (const std::int64_t limit : {without_states - 1, (without_states + least) / 2, least}) {
    SCOPED_TRACE(limit);
    const Chosen chosen = chosen_with(plus(kAuto, limited_to(limit)));
    const TierOptions& tiers = chosen.config.engine.tiers;
    EXPECT_EQ(tiers.optimizer, Tier::file);
    EXPECT_EQ(tiers.optimizer_ratio, 1);
    EXPECT_EQ(tiers.parameters, Tier::file);
    expect_fits(chosen, limit);
    EXPECT_GT(at(chosen.plans.at(0).file, MemoryClass::parameters), 0);
    TrainConfig more = chosen.config;
    more.engine.tiers.parameters_in_memory +=
        div_ceil(more.model.parameter_count(), std::int64_t{1000});
    EXPECT_GT(bytes_of(more), limit);
    const Configuration& values = chosen.config.values;
    EXPECT_EQ(values.text(kOffloadParam + "device"), "nvme");
    EXPECT_EQ(values.integer(kOffloadParam + "max_in_cpu"), tiers.parameters_in_memory);
  }
}

TEST(TierLadder, RefusesWhatNoRungFits) {
  const std::int64_t least = bytes_with(kAllInFile);
  const Chosen chosen = chosen_with(plus(kAuto, limited_to(least - 1)));
  EXPECT_EQ(planned_rank_bytes(chosen.plans), least);
  EXPECT_EQ(chosen.config.engine.tiers.parameters, Tier::file);
  EXPECT_THAT(error_of([&] { check_memory_limit(chosen.config, kThreads, chosen.plans); }),
              AllOf(HasSubstr(fmt::format("({} bytes) of a rank's memory", least)),
                    HasSubstr("short by "), Not(HasSubstr("nvme"))));
}

TEST(TierLadder, MovesByTheSectionsThatSayAuto) {
  const std::int64_t limit = bytes_with({}) - 1;
  const Chosen parameters = chosen_with(plus(
      {kOffloadParam + "device=auto", kOffloadParam + "nvme_path=/nowhere"}, limited_to(limit)));
  EXPECT_EQ(parameters.config.engine.tiers.optimizer, Tier::device);
  EXPECT_EQ(parameters.config.engine.tiers.parameters, Tier::file);
  expect_fits(parameters, limit);
  EXPECT_EQ(parameters.config.values.at(kOffloadOptimizer + "device").source, "default");
  const Overrides states_given =
      plus(kStatesInFile, {kOffloadParam + "device=auto", kOffloadOptimizer + "ratio=0.5"});
  const std::int64_t half = bytes_with(plus(kStatesInFile, {kOffloadOptimizer + "ratio=0.5"}));
  const Chosen beside = chosen_with(plus(states_given, limited_to(half - 1)));
  EXPECT_EQ(beside.config.engine.tiers.optimizer_ratio, 0.5);
  EXPECT_EQ(beside.config.engine.tiers.parameters, Tier::file);
  expect_fits(beside, half - 1);
}

TEST(TierLadder, KeepsToTheSharesThatAreGiven) {
  const Overrides bounds{kOffloadOptimizer + "ratio=0.5"};
  const std::int64_t half = bytes_with(plus(kStatesInFile, bounds));
  const Chosen chosen = chosen_with(plus(plus(kAuto, bounds), limited_to(half - 1)));
  EXPECT_EQ(chosen.config.engine.tiers.optimizer_ratio, 0.5);
  EXPECT_EQ(chosen.config.engine.tiers.parameters, Tier::file);
  expect_fits(chosen, half - 1);
  const Overrides kept{kOffloadParam + "max_in_cpu=3000000"};
  const Chosen most =
      chosen_with(plus(plus(kAuto, kept), limited_to(bytes_with(plus(kAllInFile, kept)))));
  EXPECT_GE(most.config.engine.tiers.parameters_in_memory, 3'000'000);
  EXPECT_NO_THROW(check_memory_limit(most.config, kThreads, most.plans));
}

TEST(TierLadder, NeedsAFolderForFiles) {
  const Overrides no_folder{kOffloadOptimizer + "device=auto", kOffloadParam + "device=auto"};
  const std::int64_t all = bytes_with({});
  expect_fits(chosen_with(plus(no_folder, limited_to(all))), all);
  const Chosen chosen = chosen_with(plus(no_folder, limited_to(all - 1)));
  EXPECT_FALSE(uses_file(chosen.config.engine.tiers));
  EXPECT_THAT(chosen.config.values.at(kOffloadOptimizer + "device").source,
              HasSubstr("could move only into files: give zero_optimization.offload_optimizer."
                        "nvme_path a folder on a local disk"));
  EXPECT_THAT(error_of([&] { check_memory_limit(chosen.config, kThreads, chosen.plans); }),
              AllOf(HasSubstr(kOffloadOptimizer + "nvme_path with a folder on a disk: "),
                    HasSubstr(", which fits"), Not(HasSubstr("device \"nvme\""))));
}

TEST(TierLadder, BelowStage3HasNoShardsToMove) {
  const Overrides stage2{"zero_optimization.stage=2"};
  const std::int64_t without_states = bytes_with(plus(kStatesInFile, stage2));
  const Chosen fits = chosen_with(plus(plus(kAuto, stage2), limited_to(without_states)));
  EXPECT_EQ(fits.config.engine.tiers.optimizer, Tier::file);
  expect_fits(fits, without_states);
  const Chosen chosen = chosen_with(plus(plus(kAuto, stage2), limited_to(without_states - 1)));
  EXPECT_EQ(chosen.config.engine.tiers.parameters, Tier::device);
  EXPECT_THAT(chosen.config.values.at(kOffloadParam + "device").source,
              HasSubstr("which can move, at stage 3, not at stage 2"));
  EXPECT_THAT(error_of([&] { check_memory_limit(chosen.config, kThreads, chosen.plans); }),
              HasSubstr("run.memory_limit is "));
}

// A third more arithmetic before the first byte from a disk.
TEST(TierLadder, RecomputesFirst) {
  const Overrides again{"activation_checkpointing.recompute=auto"};
  const std::int64_t all = bytes_with({});
  const std::int64_t tight = bytes_with({"activation_checkpointing.recompute=full"});
  ASSERT_LT(tight, all);
  const Overrides both = plus(kAuto, again);
  const Chosen kept = chosen_with(plus(both, limited_to(all)));
  EXPECT_FALSE(kept.config.recompute.plan.any());
  EXPECT_FALSE(uses_file(kept.config.engine.tiers));
  for (const std::int64_t limit : {all - 1, tight}) {
    const Chosen recomputed = chosen_with(plus(both, limited_to(limit)));
    EXPECT_TRUE(recomputed.config.recompute.plan.any());
    EXPECT_FALSE(uses_file(recomputed.config.engine.tiers));
    expect_fits(recomputed, limit);
  }
  const Chosen moved = chosen_with(plus(both, limited_to(tight - 1)));
  EXPECT_EQ(moved.config.engine.tiers.optimizer, Tier::file);
  expect_fits(moved, tight - 1);
  TrainConfig less = moved.config;
  less.engine.tiers.optimizer_ratio -= 0.001;
  less.recompute.plan.blocks = RecomputePlan::full(less.model.layers).blocks;
  EXPECT_GT(bytes_of(less), tight - 1) << "fewer states moved do not fit with all recomputed";
  // A whole unit may leave more room than was short: no block is computed again for nothing.
  TrainConfig alone = moved.config;
  choose_recompute(alone, kThreads);
  EXPECT_EQ(alone.recompute.plan.blocks, moved.config.recompute.plan.blocks);
  EXPECT_THAT(moved.config.values.at(kOffloadOptimizer + "device").source,
              HasSubstr("unmoved, with every block computed again, a rank takes "));
}

TEST(TierLadder, WithoutALimitHoldsToTheMachine) {
  const std::int64_t all = bytes_with({});
  const Chosen unknown = chosen_with(kAuto);
  EXPECT_FALSE(uses_file(unknown.config.engine.tiers));
  EXPECT_THAT(unknown.config.values.at(kOffloadOptimizer + "device").source,
              HasSubstr("is not known here; run.memory_limit tells"));
  const Chosen enough = chosen_with(kAuto, {.bytes = all, .source = "this machine"});
  EXPECT_FALSE(uses_file(enough.config.engine.tiers));
  EXPECT_EQ(enough.plans, plan_ranks(enough.config, kThreads));
  const Chosen few = chosen_with(kAuto, {.bytes = all - 1, .source = "this machine"});
  EXPECT_EQ(few.config.engine.tiers.optimizer, Tier::file);
  expect_fits(few, all - 1);
  EXPECT_THAT(few.config.values.at(kOffloadOptimizer + "device").source,
              HasSubstr("(this machine)"));
  // The limit is the user's, whatever the machine has.
  const Chosen limited = chosen_with(plus(kAuto, limited_to(all)), {.bytes = 1, .source = "it"});
  EXPECT_FALSE(uses_file(limited.config.engine.tiers));
}

TEST(TierLadder, LeavesOtherRunsAlone) {
  const TrainConfig given = deep(kStatesInFile);
  const Chosen chosen = chosen_of(given, {.bytes = 1, .source = "this machine"});
  EXPECT_TRUE(chosen.plans.empty());
  EXPECT_EQ(chosen.config.values.dump(), given.values.dump());
  EXPECT_EQ(bytes_of(chosen.config), bytes_of(given));
}

TEST(TierLadder, SaysWhatIsWhereAndWhy) {
  const std::int64_t all = bytes_with({});
  const Chosen moved = chosen_with(plus(kAuto, limited_to(all - 1)));
  EXPECT_THAT(
      tier_lines(moved.config),
      AllOf(Contains(AllOf(StartsWith(kOffloadOptimizer + "device \"auto\" is \"nvme\": unmoved, "
                                                          "a rank takes "),
                           HasSubstr(" of its optimizer states are in a file, "),
                           HasSubstr(" stay in memory"))),
            Contains(StartsWith(kOffloadParam + "device \"auto\" is \"none\": a rank takes ")),
            Contains(HasSubstr("are in a file of each rank in /nowhere")),
            Each(Not(HasSubstr("changes nothing")))));
  const Chosen kept = chosen_with(plus(kAuto, limited_to(all)));
  const auto none = [](const std::string& section) {
    return StartsWith(section + "device \"auto\" is \"none\": a rank takes ");
  };
  EXPECT_THAT(tier_lines(kept.config), ElementsAre(none(kOffloadOptimizer), none(kOffloadParam),
                                                   "aio changes nothing: no states are on NVMe"));
}

// Hosts may differ, and ranks choose alike.
TEST(TierLadder, IsOneForRanksThatDiffer) {
  constexpr int kWorld = 4;
  const std::int64_t all = bytes_of(deep({}, kWorld));
  std::array<RankRoom, kWorld> rooms;
  std::array<std::string, kWorld> values;
  local::run(kWorld, [&](Communicator& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    RankRoom room{.bytes = 2 * all, .source = "room"};
    if (rank == 0) room.bytes = 0;  // its host tells nothing
    if (rank == 1) room.host = 7;
    if (rank == 3) room.bytes = all - 1;  // the last has too little
    rooms[rank] = least_room(room, ranks);
    values[rank] = chosen_of(deep(kAuto, kWorld), rooms[rank]).config.values.dump();
  });
  for (const RankRoom& room : rooms) {
    EXPECT_EQ(room.bytes, all - 1);
    EXPECT_EQ(room.host, 7);
    EXPECT_EQ(room.source, "room, the least of all ranks");
  }
  EXPECT_THAT(values, Each(values[0]));
  EXPECT_THAT(values[0], HasSubstr("\"nvme\""));
}

TEST(TierLadder, KnowsWhatTheHostHasForARank) {
  const auto total = total_memory();
  if (!total) GTEST_SKIP() << "the system does not tell its memory";
  const RankRoom one = room_alone(deep(kAuto), {});
  EXPECT_GT(one.bytes, 0);
  EXPECT_LT(one.bytes, *total);
  EXPECT_EQ(one.host, 0);
  EXPECT_LE(room_alone(deep(kAuto, 8), {}).bytes, *total / 8) << "of eight ranks on this host";
  EXPECT_EQ(room_alone(deep({}), {}).bytes, 0) << "nobody asks";
  local::run(2, [&](Communicator& ranks) {
    const RankRoom room = room_of_all(deep(kAuto, 2), ranks);
    EXPECT_GT(room.bytes, 0);
    EXPECT_LE(room.bytes, *total / 2);
    EXPECT_EQ(room_of_all(deep({}, 2), ranks).bytes, 0);
  });
}

}  // namespace
}  // namespace zero::testing
