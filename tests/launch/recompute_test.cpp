// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "model/recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/sign_of_life.h"
#include "collectives/backends.h"
#include "launch/config/run_identity.h"
#include "launch/train/memory_fit.h"
#include "launch/train/plan.h"
#include "launch/train/run_device.h"
#include "tests/launch/config_with.h"
#include "tests/launch/tiny_run.h"
#include "tests/launch/train_rank.h"

// The keys of recompute, and runs that are made to fit a limit of memory.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kLayers = 3;
constexpr auto kBackend = BackendKind::local;

/// Three blocks; keys without a section are of activation_checkpointing.
TrainConfig make(const std::vector<std::string>& overrides, int world = 1) {
  std::vector<std::string> all{"model.layers=3", "train_batch_size=null",
                               "train_micro_batch_size_per_gpu=16", "run.device=cpu",
                               "run.threads=1"};
  for (const std::string& each : overrides) {
    const bool whole = each.starts_with("run.") || each.starts_with("mesh.") ||
                       each.starts_with("zero_") || each.starts_with("model.");
    all.push_back(whole ? each : "activation_checkpointing." + each);
  }
  return config_with(all, world);
}

std::string refusal(const std::vector<std::string>& overrides) {
  return error_of([&] { make(overrides); });
}

TEST(RecomputeKeys, BecomePlans) {
  using enum BlockTensor;
  const auto plan = [](const std::vector<std::string>& overrides) {
    return make(overrides).recompute.plan.blocks;
  };
  EXPECT_TRUE(plan({}).empty());
  EXPECT_TRUE(plan({"recompute=none"}).empty());
  EXPECT_EQ(plan({"recompute=full"}), RecomputePlan::full(kLayers).blocks);
  EXPECT_EQ(plan({"recompute=full", "interval=2"}), RecomputePlan::full(kLayers, 2).blocks);
  EXPECT_EQ(plan({"interval=2"}), RecomputePlan::full(kLayers, 2).blocks);
  EXPECT_EQ(plan({"tensors=qkv"}), RecomputePlan::selective(kLayers, {qkv}).blocks);
  EXPECT_EQ(plan({"recompute=selective"}),
            RecomputePlan::selective(kLayers, {attended, hidden}).blocks);
  EXPECT_EQ(plan({"recompute=selective", "tensors=[\"qkv\", \"hidden\"]"}),
            RecomputePlan::selective(kLayers, {qkv, hidden}).blocks);
  EXPECT_EQ(plan({"number_checkpoints=2"}), RecomputePlan::grouped(kLayers, 2).blocks);
  EXPECT_EQ(plan({"recompute=full", "number_checkpoints=1"}),
            RecomputePlan::grouped(kLayers, 1).blocks);
  EXPECT_EQ(make({}).recompute.plan.outputs, BlockOutputs::of_device);
  EXPECT_EQ(make({"keep_outputs=true"}).recompute.plan.outputs, BlockOutputs::kept);
  EXPECT_EQ(make({"recompute=full", "keep_outputs=false"}).recompute.plan.outputs,
            BlockOutputs::again);
  EXPECT_FALSE(make({}).recompute.plan.partition_inputs);
  EXPECT_TRUE(make({"partition_activations=true"}).recompute.plan.partition_inputs);
  EXPECT_EQ(make({"number_checkpoints=2"}).values.text("activation_checkpointing.recompute"),
            "full");
  EXPECT_EQ(make({"run.memory_limit=\"1.5KiB\""}).recompute.memory_limit, 1536);
  EXPECT_EQ(make({"run.memory_limit=60GB"}).recompute.memory_limit, 60'000'000'000);
  EXPECT_EQ(make({"run.memory_limit=1e9"}).recompute.memory_limit, 1'000'000'000);
  EXPECT_EQ(make({}).recompute.memory_limit, 0);
}

TEST(RecomputeKeys, ThatContradictEachOtherAreNamedTogether) {
  const std::string section = "activation_checkpointing.";
  const auto both = [&](const std::vector<std::string>& overrides, const char* one,
                        const char* other) {
    EXPECT_THAT(refusal(overrides),
                AllOf(HasSubstr("c.json: "), HasSubstr(section + one), HasSubstr(other)));
  };
  both({"recompute=none", "interval=2"}, "interval", "recompute is \"none\"");
  both({"recompute=selective", "interval=2"}, "interval", "recompute is \"selective\"");
  both({"recompute=full", "tensors=qkv"}, "tensors", "recompute is \"full\"");
  both({"recompute=selective", "number_checkpoints=2"}, "number_checkpoints",
       "recompute is \"selective\"");
  both({"recompute=none", "number_checkpoints=2"}, "number_checkpoints", "recompute is \"none\"");
  both({"number_checkpoints=2", "interval=2"}, "number_checkpoints is 2",
       "activation_checkpointing.interval is 2");
  both({"number_checkpoints=4"}, "number_checkpoints is 4", "model.layers is 3");
  both({"recompute=auto"}, "recompute is \"auto\"", "run.memory_limit");
  both({"recompute=auto", "tensors=qkv", "run.memory_limit=1GiB"}, "tensors",
       "recompute is \"auto\"");
  EXPECT_THAT(refusal({"recompute=selective", "tensors=[\"middle\"]"}),
              HasSubstr("tensors: found \"middle\", expected some of \"qkv\", \"attended\""));
  EXPECT_THAT(refusal({"recompute=some"}), HasSubstr("expected one of \"none\", \"full\""));
  for (const char* text :
       {"\"8\"", "\"8gb\"", "\"1.2.3GiB\"", "0", "-1", "true", "\"0.1B\"", "\"GiB\"", "1e30"}) {
    EXPECT_THAT(refusal({fmt::format("run.memory_limit={}", text)}),
                AllOf(HasSubstr("run.memory_limit: found"), HasSubstr("kB, MB, GB, TB, KiB")))
        << text;
  }
}

// What changes no bit must not keep a run from its checkpoint.
TEST(RecomputeKeys, AreNoPartOfARunsIdentity) {
  for (const std::string& key : identity_keys()) {
    EXPECT_FALSE(key.starts_with("activation_checkpointing.") || key == "run.memory_limit") << key;
  }
}

TEST(RecomputeKeys, SayWhatHasNoEffect) {
  const auto lines = [](const std::vector<std::string>& overrides, int world) {
    return recompute_lines(make(overrides, world));
  };
  EXPECT_TRUE(lines({}, 1).empty());
  EXPECT_THAT(
      lines({"keep_outputs=true"}, 1),
      ::testing::ElementsAre("backward reads the outputs of norms and GELU that were kept"));
  const std::vector<std::string> on_gpu{"run.device=cuda", "cpu_checkpointing=true"};
  EXPECT_THAT(lines(on_gpu, 1),
              ::testing::Contains(HasSubstr("cpu_checkpointing has no effect: 2 or fewer blocks")));
  EXPECT_THAT(lines({"run.device=cuda", "cpu_checkpointing=true", "recompute=full"}, 1),
              ::testing::Contains(HasSubstr("inputs of 3 blocks are in pinned host memory")));
  EXPECT_THAT(lines({"cpu_checkpointing=true", "recompute=full"}, 1),
              ::testing::ElementsAre("backward computes again: blocks 0 to 2: whole"));
  const std::string key = "partition_activations=true";
  EXPECT_THAT(lines({key, "recompute=full"}, 1),
              ::testing::ElementsAre("backward computes again: blocks 0 to 2: whole",
                                     HasSubstr("no effect: there is one tensor rank")));
  EXPECT_THAT(lines({key, "recompute=full", "mesh.tensor=2", "mesh.sequence_parallel=true"}, 2),
              ::testing::Contains(HasSubstr("inputs are shares already")));
  EXPECT_THAT(lines({key, "mesh.tensor=2"}, 2),
              ::testing::ElementsAre(HasSubstr("no block keeps its input alone")));
  EXPECT_THAT(lines({key, "recompute=selective", "mesh.tensor=2"}, 2),
              ::testing::Contains(HasSubstr("no block keeps its input alone")));
  EXPECT_THAT(lines({key, "number_checkpoints=2", "mesh.tensor=2"}, 2), ::testing::SizeIs(1));
  EXPECT_THAT(lines({key, "recompute=full", "mesh.tensor=2"}, 2), ::testing::SizeIs(1));
  EXPECT_THAT(lines({"number_checkpoints=1"}, 1),
              ::testing::Contains(HasSubstr("number_checkpoints is 1")));
  EXPECT_THAT(lines({"recompute=full", "model.layers=1"}, 1), ::testing::SizeIs(1));
}

std::int64_t planned_with(TrainConfig config, std::vector<BlockRecompute> blocks) {
  config.recompute.plan.blocks = std::move(blocks);
  return planned_rank_bytes(config, kBackend);
}

/// Memory and FLOP of every plan in which the first blocks compute a tensor again, so many for
/// each.
std::vector<std::pair<std::int64_t, double>> every_plan(const TrainConfig& config) {
  std::vector<std::pair<std::int64_t, double>> all;
  const auto add = [&](std::int64_t whole, std::int64_t qkv, std::int64_t attended,
                       std::int64_t hidden) {
    RecomputePlan plan;
    for (std::int64_t i = 0; i < kLayers; ++i) {
      plan.blocks.push_back(
          {.qkv = i < qkv, .attended = i < attended, .middle = i < whole, .hidden = i < hidden});
    }
    all.emplace_back(planned_with(config, plan.blocks),
                     recomputed_flop(config.model, config.data.sequence_length, plan));
  };
  for (std::int64_t whole = 0; whole <= kLayers; ++whole) {
    for (std::int64_t qkv = whole; qkv <= kLayers; ++qkv) {
      for (std::int64_t attended = whole; attended <= kLayers; ++attended) {
        for (std::int64_t hidden = whole; hidden <= kLayers; ++hidden) {
          add(whole, qkv, attended, hidden);
        }
      }
    }
  }
  return all;
}

TEST(AutoRecompute, IsTheCheapestPlanThatFits) {
  const std::vector<std::vector<std::string>> settings{
      {}, {"mesh.tensor=2", "partition_activations=true"}};
  for (const auto& extra : settings) {
    const auto config_of = [&](std::int64_t limit) {
      std::vector<std::string> overrides = extra;
      overrides.emplace_back("recompute=auto");
      overrides.push_back(fmt::format("run.memory_limit={}", limit));
      return make(overrides, extra.empty() ? 1 : 2);
    };
    const TrainConfig any = config_of(1);
    const auto all = every_plan(any);
    const std::int64_t most = planned_with(any, {});
    const std::int64_t least = planned_with(any, RecomputePlan::full(kLayers).blocks);
    ASSERT_LT(least, most);
    for (int part = 0; part <= 20; ++part) {
      const std::int64_t limit = least + (most - least) * part / 20;
      double cheapest = std::numeric_limits<double>::infinity();
      for (const auto& [bytes, flop] : all) {
        if (bytes <= limit) cheapest = std::min(cheapest, flop);
      }
      TrainConfig config = config_of(limit);
      const RankPlans plans = choose_recompute(config, kBackend);
      EXPECT_EQ(plans, plan_ranks(config, kBackend));
      EXPECT_LE(planned_rank_bytes(plans), limit);
      EXPECT_EQ(recomputed_flop(config.model, config.data.sequence_length, config.recompute.plan),
                cheapest)
          << part << ": " << config.recompute.plan.text();
      EXPECT_NO_THROW(check_memory_limit(config, kBackend, plans));
      EXPECT_EQ(config.recompute.plan.any(), part < 20);
    }
  }
}

TEST(AutoRecompute, OfADeepModelTriesCountsAStrideApart) {
  TrainConfig config = make({"recompute=auto", "run.memory_limit=1GiB", "model.layers=120"}, 2);
  const std::vector<BlockRecompute> all = RecomputePlan::full(120).blocks;
  const std::int64_t least = planned_with(config, all);
  const std::int64_t most = planned_with(config, {});
  config.recompute.memory_limit = (least + most) / 2;
  // The fewest whole blocks that fit, of counts that are tried: two apart.
  RecomputePlan whole;
  for (std::size_t count = 0; planned_with(config, whole.blocks) > config.recompute.memory_limit;) {
    whole.blocks.assign(all.size(), {});
    count += 2;
    std::fill_n(whole.blocks.begin(), count, BlockRecompute::all());
  }
  const auto flop = [&](const RecomputePlan& plan) {
    return recomputed_flop(config.model, config.data.sequence_length, plan);
  };
  const std::int64_t before = signs_of_life();
  choose_recompute(config, kBackend);
  EXPECT_GE(signs_of_life() - before, 61 * 62 / 2) << "for a watchdog: each pair of two counts";
  EXPECT_TRUE(config.recompute.plan.any());
  EXPECT_LE(flop(config.recompute.plan), flop(whole));
  EXPECT_NO_THROW(check_memory_limit(config, kBackend, plan_ranks(config, kBackend)));
  config.recompute.memory_limit = least - 1;
  choose_recompute(config, kBackend);
  EXPECT_EQ(config.recompute.plan.blocks, all);
}

TEST(MemoryLimit, ThatNothingMeetsIsShortByWhatItSays) {
  // Blocks enough, of which few are gathered at once, for stage 3 to help.
  constexpr std::int64_t kMany = 12;
  TrainConfig config =
      make({"recompute=auto", "run.memory_limit=100KiB", "model.layers=12", "model.context=128",
            "zero_optimization.stage=1", "zero_optimization.stage3_param_persistence_threshold=0",
            "zero_optimization.stage3_prefetch_bucket_size=0"},
           2);
  choose_recompute(config, kBackend);
  const std::int64_t planned = planned_with(config, RecomputePlan::full(kMany).blocks);
  EXPECT_EQ(planned_rank_bytes(config, kBackend), planned);
  const std::string message =
      error_of([&] { check_memory_limit(config, kBackend, plan_ranks(config, kBackend)); });
  EXPECT_THAT(
      message,
      AllOf(
          HasSubstr(fmt::format("({} bytes) of a rank's memory with every block", planned)),
          HasSubstr("run.memory_limit is 100.00 KiB (102400 bytes)"),
          HasSubstr(fmt::format("({} bytes). What would help, as planned (none is enough alone): ",
                                planned - 102400)),
          HasSubstr("train_micro_batch_size_per_gpu 1 with gradient_accumulation_steps 16: "),
          HasSubstr("zero_optimization.stage 3: "), HasSubstr("bf16.enabled: "),
          HasSubstr("optimizer.params.moments \"bf16\": ")));
  config = make({"run.memory_limit=100KiB"});
  EXPECT_THAT(error_of([&] { check_memory_limit(config, kBackend, plan_ranks(config, kBackend)); }),
              HasSubstr("activation_checkpointing.recompute \"full\": "));
  config = make({"run.memory_limit=100KiB", "keep_outputs=true"});
  EXPECT_THAT(error_of([&] { check_memory_limit(config, kBackend, plan_ranks(config, kBackend)); }),
              HasSubstr("activation_checkpointing.keep_outputs false: "));
  config = make({"run.memory_limit=100KiB"});
  config.recompute.memory_limit = planned_with(config, RecomputePlan::full(kLayers).blocks);
  EXPECT_THAT(error_of([&] { check_memory_limit(config, kBackend, plan_ranks(config, kBackend)); }),
              HasSubstr(", which fits"));
  config.recompute.memory_limit = planned_rank_bytes(config, kBackend);
  EXPECT_NO_THROW(check_memory_limit(config, kBackend, plan_ranks(config, kBackend)));
}

/// The last line of the log of a run on `world` ranks.
nlohmann::json last_line(const TinyRun& run, int world, const std::vector<std::string>& overrides) {
  local::run(world, [&](Communicator& ranks) {
    TrainConfig config = make_train_config(Configuration::read(run.config(), overrides), world);
    choose_recompute(config, kBackend);
    RunDevice device(config, ranks, nullptr);
    train_rank(config, device.world(), device.device());
  });
  return run.log().back();
}

TEST(RecomputeRuns, EndInTheSameStateWithTheMemoryPlanned) {
  const TinyRun run;
  const std::vector<std::string> usual{"run.device=cpu", "run.validation_every=1",
                                       "model.layers=4"};
  const nlohmann::json expected = last_line(run, 2, usual);
  const auto activations = [](const nlohmann::json& line) -> std::int64_t {
    return line["memory"]["activations"]["peak"];
  };
  for (const char* mode :
       {"recompute=full", "number_checkpoints=2", "recompute=selective", "recompute=auto"}) {
    std::vector<std::string> overrides = usual;
    overrides.push_back(std::string("activation_checkpointing.") + mode);
    if (std::string_view(mode) == "recompute=auto") {
      std::int64_t bytes = -1;  // so that what is kept now is just too much
      for (const auto& [name, each] : expected["memory"].items()) {
        bytes += each["planned"].get<std::int64_t>();
      }
      overrides.push_back(fmt::format("run.memory_limit={}", bytes));
    }
    const nlohmann::json line = last_line(run, 2, overrides);
    EXPECT_EQ(line["state_hash"], expected["state_hash"]) << mode;
    EXPECT_EQ(line["validation_loss"], expected["validation_loss"]) << mode;
    EXPECT_EQ(line["plan_exact"], true) << mode;
    EXPECT_LT(activations(line), activations(expected)) << mode;
  }
  std::vector<std::string> overrides = usual;
  overrides.emplace_back("activation_checkpointing.keep_outputs=true");
  const nlohmann::json line = last_line(run, 2, overrides);
  EXPECT_EQ(line["state_hash"], expected["state_hash"]);
  EXPECT_EQ(line["plan_exact"], true);
  EXPECT_GT(activations(line), activations(expected));
}

}  // namespace
}  // namespace zero::testing
