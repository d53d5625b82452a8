// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "collectives/backends.h"
#include "launch/train/configured_run.h"
#include "launch/train/memory_fit.h"
#include "launch/train/run_device.h"
#include "launch/train/tier_ladder.h"
#include "launch/train/train_program.h"
#include "tests/launch/tier_keys.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

// Runs whose devices of offload_optimizer and offload_param are "auto".
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// What a rank of a run takes.
std::int64_t bytes_of_run(const TinyRun& run, const Overrides& keys, int world) {
  return planned_rank_bytes(make_train_config(Configuration::read(run.config(), keys), world),
                            BackendKind::local);
}

/// The last line of the log of a run that takes a moment, of two ranks.
nlohmann::json end_of_run(const TinyRun& run, const Overrides& overrides) {
  local::run(2, [&](Communicator& ranks) {
    TrainConfig config = make_train_config(Configuration::read(run.config(), overrides), 2);
    const RankRoom room = room_of_all(config, ranks);
    fit_memory(config, BackendKind::local, room);
    RunDevice device(config, ranks, nullptr);
    train_rank(config, device.world(), device.device());
  });
  return run.log().back();
}

TEST(TierLadderRuns, EndInTheSameStateWithTheMemoryPlanned) {
  const TinyRun run;
  const std::string folder = run.folder().path();
  const Overrides usual = plus({"run.device=cpu", "model.width=64", "model.layers=6",
                                "zero_optimization.stage3_param_persistence_threshold=0"},
                               small_windows());
  const nlohmann::json expected = end_of_run(run, usual);
  const auto planned = [&](const Overrides& more) {
    return bytes_of_run(run, plus(usual, more), 2);
  };
  const Overrides path{kOffloadOptimizer + "nvme_path=" + folder};
  const Overrides few{kOffloadOptimizer + "buffer_count=1", kOffloadParam + "buffer_count=1"};
  const Overrides automatic =
      plus(plus({kOffloadOptimizer + "device=auto", kOffloadParam + "device=auto"}, path), few);
  const Overrides states = plus(plus({kOffloadOptimizer + "device=nvme"}, path), few);
  const std::int64_t all = planned({});
  const std::int64_t without_states = planned(states);
  ASSERT_LT(without_states, all);
  ASSERT_LT(planned(plus(states, {kOffloadParam + "device=nvme"})), without_states);
  for (const auto& [limit, filed] :
       {std::pair(all, 0U), std::pair(all - 1, 1U), std::pair(without_states - 1, 2U)}) {
    SCOPED_TRACE(limit);
    const nlohmann::json last = end_of_run(run, plus(plus(usual, automatic), limited_to(limit)));
    EXPECT_EQ(last["state_hash"], expected["state_hash"]);
    EXPECT_EQ(last["validation_loss"], expected["validation_loss"]);
    EXPECT_EQ(last["plan_exact"], true);
    EXPECT_EQ(last["file"]["used"].size(), filed);
    EXPECT_EQ(last["file"]["planned"], last["file"]["used"]);
  }
}

TEST(TierLadderRuns, ShowWhatTheyWillDo) {
  const TinyRun run;
  const Overrides usual = plus({"run.device=cpu", "model.width=64", "model.layers=6",
                                kOffloadOptimizer + "nvme_path=" + run.folder().path()},
                               small_windows());
  const std::int64_t all = bytes_of_run(run, usual, 1);
  TrainFlags flags{
      .config = run.config(),
      .overrides = plus(plus(usual, limited_to(all - 1)), {kOffloadOptimizer + "device=auto"})};
  EXPECT_THAT(
      printed_config(flags, 1),
      ContainsRegex(kOffloadOptimizer + "device += \"nvme\" +# auto: unmoved, a rank takes "));
  const PrintedPlan plan = printed_plan(flags, 1);
  EXPECT_EQ(plan.over_limit, "");
  EXPECT_THAT(plan.text, AllOf(HasSubstr("device \"auto\" is \"nvme\": unmoved, a rank takes "),
                               HasSubstr("\nin files, beside memory\n")));
  flags.overrides.push_back(kOffloadOptimizer + "nvme_path=null");
  const PrintedPlan refused = printed_plan(flags, 1);
  EXPECT_THAT(refused.text, HasSubstr("device \"auto\" is \"none\": "));
  EXPECT_THAT(refused.over_limit, HasSubstr("nvme_path with a folder on a disk"));
}

}  // namespace
}  // namespace zero::testing
