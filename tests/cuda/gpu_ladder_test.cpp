// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// "auto" as a device of offload_optimizer and offload_param, on a GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launch/train/memory_fit.h"
#include "launch/train/tier_ladder.h"
#include "launch/train/tier_lines.h"
#include "tests/cuda/emulator/emulator.h"
#include "tests/launch/config_with.h"
#include "tests/launch/tier_keys.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kNccl = BackendKind::nccl;
const Overrides kGpuAuto{kOffloadOptimizer + "device=auto", kOffloadParam + "device=auto"};
const Overrides kOnHost{kOffloadOptimizer + "device=cpu"};

/// A model whose states are many pages of a GPU.
TrainConfig gpu_config(const Overrides& keys) {
  const Overrides model{"run.device=cuda", "model.width=512", "model.layers=8", "bf16.enabled=true",
                        kOffloadOptimizer + "buffer_size=4096"};
  return config_with(plus(model, keys));
}

std::int64_t gpu_bytes(const Overrides& keys) {
  return planned_rank_bytes(gpu_config(keys), kNccl);
}

TEST(GpuLadder, LeavesWhatFitsOnTheGpu) {
  const std::int64_t all = gpu_bytes({});
  TrainConfig config = gpu_config(plus(kGpuAuto, limited_to(all)));
  const RankPlans plans = fit_memory(config, kNccl);
  EXPECT_EQ(config.engine.tiers.optimizer, Tier::device);
  EXPECT_EQ(planned_rank_bytes(plans), all);
  EXPECT_EQ(config.values.text(kOffloadOptimizer + "device"), "none");
}

TEST(GpuLadder, MovesAsManyOptimizerStatesToTheHostAsItMust) {
  const std::int64_t all = gpu_bytes({});
  const std::int64_t without_states = gpu_bytes(kOnHost);
  ASSERT_LT(without_states, all);
  for (const std::int64_t limit : {all - 1, (all + without_states) / 2, without_states}) {
    SCOPED_TRACE(limit);
    TrainConfig config = gpu_config(plus(kGpuAuto, limited_to(limit)));
    const RankPlans plans = fit_memory(config, kNccl);
    const TierOptions& tiers = config.engine.tiers;
    EXPECT_EQ(tiers.optimizer, Tier::host);
    EXPECT_EQ(tiers.parameters, Tier::device);
    EXPECT_LE(planned_rank_bytes(plans), limit);
    EXPECT_EQ(plans, plan_ranks(config, kNccl));
    EXPECT_NO_THROW(check_memory_limit(config, kNccl, plans));
    TrainConfig less = config;
    less.engine.tiers.optimizer_ratio -= 0.001;
    EXPECT_GT(planned_rank_bytes(less, kNccl), limit);
    EXPECT_EQ(config.values.text(kOffloadOptimizer + "device"), "cpu");
    EXPECT_THAT(
        tier_lines(config),
        AllOf(Contains(AllOf(StartsWith(kOffloadOptimizer +
                                        "device \"auto\" is \"cpu\": unmoved, a rank takes "),
                             HasSubstr(" of its optimizer states are in pinned host memory, "),
                             HasSubstr(" stay in the GPU's"))),
              Contains(StartsWith(kOffloadParam + "device \"auto\" is \"none\": "))));
  }
}

TEST(GpuLadder, SaysWhatItCannotMove) {
  const std::int64_t without_states = gpu_bytes(kOnHost);
  TrainConfig config = gpu_config(plus(kGpuAuto, limited_to(without_states - 1)));
  const RankPlans plans = fit_memory(config, kNccl);
  EXPECT_EQ(planned_rank_bytes(plans), without_states);
  EXPECT_THAT(config.values.at(kOffloadParam + "device").source,
              HasSubstr("; ranks have shards of them, which can move, at stage 3"));
  EXPECT_THAT(error_of([&] { check_memory_limit(config, kNccl, plans); }),
              HasSubstr("run.memory_limit is "));
}

TEST(GpuLadder, MovesShardsOfStage3BehindTheStates) {
  const Overrides sharded{"zero_optimization.stage=3"};
  const std::int64_t states_away = gpu_bytes(plus(sharded, kOnHost));
  const std::int64_t both_away =
      gpu_bytes(plus(plus(sharded, kOnHost), {kOffloadParam + "device=cpu"}));
  ASSERT_LT(both_away, states_away);
  TrainConfig config = gpu_config(plus(plus(sharded, kGpuAuto), limited_to(both_away)));
  const RankPlans plans = fit_memory(config, kNccl);
  EXPECT_EQ(config.engine.tiers.optimizer, Tier::host);
  EXPECT_EQ(config.engine.tiers.parameters, Tier::host);
  EXPECT_EQ(planned_rank_bytes(plans), both_away);
  EXPECT_EQ(config.values.text(kOffloadParam + "device"), "cpu");
}

// What moves no less than the GPU needs stays the same; the host's check has the figures.
TEST(GpuLadder, MovesNoMoreWhereTheHostIsShort) {
  const Overrides keys = plus(kGpuAuto, limited_to((gpu_bytes({}) + gpu_bytes(kOnHost)) / 2));
  TrainConfig enough = gpu_config(keys);
  const RankPlans expected = fit_memory(enough, kNccl);
  TrainConfig scarce = gpu_config(keys);
  EXPECT_EQ(fit_memory(scarce, kNccl, {.host = 1 << 20}), expected);
  EXPECT_EQ(scarce.engine.tiers.optimizer_ratio, enough.engine.tiers.optimizer_ratio);
}

TEST(GpuLadder, TakesAFileWhereTheHostIsShort) {
  const std::string folder = ::testing::TempDir();
  const Overrides keys = plus(plus(kGpuAuto, {kOffloadOptimizer + "nvme_path=" + folder}),
                              limited_to((gpu_bytes({}) + gpu_bytes(kOnHost)) / 2));
  TrainConfig on_host = gpu_config(keys);
  fit_memory(on_host, kNccl);
  EXPECT_EQ(on_host.engine.tiers.optimizer, Tier::host);
  const RankPlans in_file = plan_ranks(
      gpu_config({kOffloadOptimizer + "device=nvme", kOffloadOptimizer + "nvme_path=" + folder}),
      kNccl);
  const std::int64_t twins = in_file.begin()->second.on_host();
  TrainConfig config = gpu_config(keys);
  const RankPlans plans = fit_memory(config, kNccl, {.host = twins});
  EXPECT_EQ(config.engine.tiers.optimizer, Tier::file);
  EXPECT_EQ(config.engine.tiers.parameters, Tier::device);
  EXPECT_LE(plans.begin()->second.on_host(), twins);
}

TEST(GpuLadder, OffersUsualWindowsOfHostMemory) {
  const std::int64_t usual = gpu_bytes(kOnHost);
  const TrainConfig config =
      gpu_config(plus(plus(kOnHost, limited_to(usual)), {kOffloadOptimizer + "buffer_count=64"}));
  const RankPlans plans = plan_ranks(config, kNccl);
  ASSERT_GT(planned_rank_bytes(plans), usual);
  EXPECT_THAT(error_of([&] { check_memory_limit(config, kNccl, plans); }),
              HasSubstr(kOffloadOptimizer + "buffer_count 4: "));
}

TEST(GpuLadder, KnowsWhatIsFreeOnTheGpu) {
  cuda::emulated::reset({.memory = std::size_t{6} << 30});
  const RankRoom room = room_alone(gpu_config(kGpuAuto), {});
  EXPECT_GT(room.bytes, std::int64_t{4} << 30);
  EXPECT_LE(room.bytes, std::int64_t{5} << 30) << "1 GiB is the libraries'";
  EXPECT_EQ(room_alone(gpu_config({}), {}).bytes, 0) << "nobody asks";
  cuda::emulated::reset({.devices = 0});
  EXPECT_EQ(room_alone(gpu_config(kGpuAuto), {}).bytes, 0) << "its run will tell";
  cuda::emulated::reset();
}

}  // namespace
}  // namespace zero::testing
