// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Shards of parameters of the emulated GPU in pinned host memory, values in files behind it, and
// kept inputs of blocks in it give the bits of those in its own memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launch/train/memory_fit.h"
#include "tests/cuda/tiered_runs.h"
#include "tests/engine/small_windows.h"
#include "tests/errors.h"
#include "tests/model/outcome.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using cuda::emulated::Settings;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kLayers = 4;

/// Where states and shards are.
struct Homes {
  Tier states;
  Tier shards;
};

TierOptions tiers_of(const Homes& homes, const std::string& folder, int buffers) {
  TierOptions tiers = small_windows(folder, buffers);
  tiers.optimizer = homes.states;
  tiers.parameters = homes.shards;
  tiers.fetch_buffers = buffers;
  return tiers;
}

Settings settings_of(int number) {
  return {.order = number % 2 == 0 ? Settings::Order::seeded : Settings::Order::lazy,
          .seed = static_cast<std::uint64_t>(number)};
}

Outcome outcome_in_order(int ranks, const EngineOptions& engine, const Settings& settings,
                         const RecomputePlan& recompute = {}) {
  cuda::emulated::reset(settings);
  const DecoderShape model = tiny_gpt2({{"width", 32}, {"heads", 4}, {"layers", kLayers}});
  Outcome outcome = outcome_of(
      model, 4, ranks, engine, [] { return cuda::open(); }, recompute);
  cuda::emulated::reset();
  return outcome;
}

// Each type with each place, and each of these with each number of ranks.
TEST(ShardsOfAGpu, InHostMemoryOrFilesChangeNoBit) {
  const Scratch scratch;
  constexpr std::array kRanks{1, 2, 4};
  std::size_t number = 0;
  std::size_t of_type = 0;
  for (const auto& [dtype, moments] :
       {std::pair{DType::bf16, MomentFormat::fp32}, std::pair{DType::fp32, MomentFormat::bf16},
        std::pair{DType::fp16, MomentFormat::eight_bit}}) {
    const Outcome expected = outcome_in_order(1, gpu_options(0, dtype, moments), {});
    for (const Homes& homes : {Homes{Tier::device, Tier::host}, Homes{Tier::host, Tier::host},
                               Homes{Tier::file, Tier::file}, Homes{Tier::host, Tier::file}}) {
      const int ranks = kRanks[(number + of_type) % kRanks.size()];
      EngineOptions engine = gpu_options(3, dtype, moments);
      engine.tiers = tiers_of(homes, scratch.path(), 1 + static_cast<int>(number % 3));
      EXPECT_EQ(outcome_in_order(ranks, engine, settings_of(static_cast<int>(number))), expected)
          << name_of(dtype) << ", " << ranks << " ranks, case " << number;
      ++number;
    }
    ++of_type;
  }
  EXPECT_THAT(scratch.names(), ::testing::IsEmpty());
}

TEST(StatesOfAGpu, InFilesChangeNoBitAtAnyStage) {
  const Scratch scratch;
  const Outcome expected = outcome_in_order(1, gpu_options(0, DType::bf16, MomentFormat::fp32), {});
  for (const int stage : {0, 1, 2, 3}) {
    EngineOptions engine = gpu_options(stage, DType::bf16, MomentFormat::fp32);
    engine.tiers = tiers_of({Tier::file, Tier::device}, scratch.path(), 2);
    EXPECT_EQ(outcome_in_order(2, engine, settings_of(stage)), expected) << "stage " << stage;
  }
}

// Each stage with each type and each plan.
TEST(KeptInputsOfAGpu, InHostMemoryChangeNoBit) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const int group : {1, 3}) {
      RecomputePlan plan =
          group == 1 ? RecomputePlan::full(kLayers) : RecomputePlan::grouped(kLayers, group);
      // A GPU's recompute has last bits of its own: compared is where inputs are.
      const Outcome expected =
          outcome_in_order(1, gpu_options(0, dtype, MomentFormat::fp32), {}, plan);
      plan.inputs_on_host = true;
      for (const auto& [stage, ranks] :
           {std::pair{0, 1}, std::pair{1, 2}, std::pair{2, 4}, std::pair{3, 2}}) {
        const bool is_other = (group == 1) == (dtype == DType::fp32);
        if (is_other == (stage / 2 == 0)) continue;
        const EngineOptions engine = gpu_options(stage, dtype, MomentFormat::fp32);
        EXPECT_EQ(outcome_in_order(ranks, engine, settings_of(stage), plan), expected)
            << "stage " << stage << ", " << ranks << " ranks, " << plan.text();
      }
    }
  }
}

/// Trains two steps on two ranks, each beside its plan.
void expect_as_planned(const EngineOptions& engine, const RecomputePlan& recompute) {
  cuda::emulated::reset({});
  local::run(2, [&](Communicator& ranks) {
    DecoderShape model = tiny_llama();
    model.layers = kLayers;
    const auto none = planning::open(1, MemorySpace::device, DeviceKind::cuda);
    const auto nobody = planning::communicator(ranks.rank(), ranks.size(), ranks.backend());
    const Training plan(*nobody, *none, engine, model, {2, 7}, 2, {}, recompute);

    const auto device = cuda::open({.reserve = none->device_bytes().arenas});
    Training training(ranks, *device, engine, model, {2, 7}, 2, {}, recompute);
    for (int step = 0; step < 2; ++step) {
      for (int j = 0; j < 2; ++j) training.train(Batch::random(14, 23, 1), 1.0F / 56);
      training.engine.step({.learning_rate = 1e-2});
    }
    EXPECT_EQ(device->ledger().snapshot().peak, none->ledger().snapshot().peak);
    EXPECT_EQ(device->file_ledger().snapshot().peak, none->file_ledger().snapshot().peak);
    EXPECT_EQ(device->host_bytes(), none->host_bytes());
    for (const MemoryClass of : {MemoryClass::parameters, MemoryClass::optimizer,
                                 MemoryClass::activations, MemoryClass::staging}) {
      EXPECT_EQ(at(device->device_bytes().arenas, of), at(none->device_bytes().arenas, of))
          << name_of(of);
    }
  });
  cuda::emulated::reset();
}

TEST(TiersOfAGpu, TakeTheMemoryThatWasPlanned) {
  const Scratch scratch;
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::eight_bit}) {
    for (const Homes& homes : {Homes{Tier::device, Tier::host}, Homes{Tier::host, Tier::host},
                               Homes{Tier::file, Tier::file}, Homes{Tier::file, Tier::host}}) {
      EngineOptions engine = gpu_options(3, DType::bf16, moments);
      engine.tiers = tiers_of(homes, scratch.path(), 2);
      expect_as_planned(engine, {});
      engine.tiers.parameters_in_memory = 2'000;
      expect_as_planned(engine, {});
    }
  }
  RecomputePlan plan = RecomputePlan::full(kLayers);
  plan.inputs_on_host = true;
  expect_as_planned(gpu_options(3, DType::bf16, MomentFormat::fp32), plan);
}

// Graphs hold passes of the model; copies lie between them.
TEST(TiersOfAGpu, AreInNoGraph) {
  const auto graphs = [](const EngineOptions& engine, const RecomputePlan& recompute) {
    cuda::emulated::reset({});
    std::string counted;
    local::run(1, [&](Communicator& alone) {
      const auto device = cuda::open();
      Training training(alone, *device, engine, tiny_gpt2({{"layers", kLayers}}), {2, 7}, 2, {},
                        recompute);
      for (int step = 0; step < 3; ++step) {
        for (int j = 0; j < 2; ++j) training.train(Batch::random(14, 23, 1), 1.0F / 56);
        training.engine.step({.learning_rate = 1e-2});
      }
      const CaptureCounts captured = training.engine.captured_graphs();
      EXPECT_GT(captured.graphs, 0);
      counted = fmt::format("{} of {}, {} refused {}", captured.graphs, captured.nodes,
                            captured.refused, captured.refusal);
    });
    cuda::emulated::reset();
    return counted;
  };
  const EngineOptions engine = gpu_options(3, DType::bf16, MomentFormat::fp32);
  EngineOptions away = engine;
  away.tiers = tiers_of({Tier::host, Tier::host}, "", 2);
  RecomputePlan plan = RecomputePlan::full(kLayers);
  const std::string expected = graphs(engine, plan);
  plan.inputs_on_host = true;
  EXPECT_EQ(graphs(away, plan), expected);
}

// A run is resumed with its values elsewhere.
TEST(TiersOfAGpu, OfARunAreAsPlannedAndSavedForAnyTier) {
  const Scratch scratch;
  const std::string zero = "zero_optimization.";
  const std::vector<std::string> none;
  const std::vector<std::string> host{"activation_checkpointing.cpu_checkpointing=true",
                                      zero + "offload_optimizer.device=cpu",
                                      zero + "offload_param.device=cpu"};
  const std::vector<std::string> file{zero + "offload_optimizer.device=nvme",
                                      zero + "offload_param.device=nvme",
                                      zero + "offload_param.nvme_path=" + scratch.path()};
  const auto with = [&](const std::vector<std::string>& places,
                        const std::vector<std::string>& more) {
    std::vector<std::string> keys{"model.layers=4", zero + "stage=3",
                                  zero + "stage3_param_persistence_threshold=0",
                                  "activation_checkpointing.recompute=full"};
    keys.insert(keys.end(), places.begin(), places.end());
    keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  };
  const TinyRun whole;
  const nlohmann::json expected = last_of(whole, with(none, {"run.steps=2"}));
  for (const auto& [first, second] :
       {std::pair{none, host}, std::pair{host, file}, std::pair{file, none}}) {
    const TinyRun run;
    std::vector<std::string> saves{"run.steps=1", "run.checkpoint.every_steps=1",
                                   "run.checkpoint.folder=" + run.folder().path("ck")};
    const nlohmann::json half = last_of(run, with(first, saves));
    EXPECT_EQ(half["plan_exact"], true) << half["device"];
    saves[0] = "run.steps=2";
    const nlohmann::json last = last_of(run, with(second, saves));
    EXPECT_EQ(last["plan_exact"], true) << last["device"];
    EXPECT_EQ(last["state_hash"], expected["state_hash"]);
  }
  EXPECT_THAT(scratch.names(), ::testing::IsEmpty());
}

TEST(TiersOfAGpu, AreOfferedToARunThatDoesNotFit) {
  const TinyRun run;
  const auto refusal = [&](const std::vector<std::string>& more) {
    std::vector<std::string> keys{"run.device=cuda",
                                  "run.memory_limit=1MiB",
                                  "model.width=512",
                                  "model.layers=8",
                                  "bf16.enabled=true",
                                  "train_batch_size=64",
                                  "train_micro_batch_size_per_gpu=64",
                                  "zero_optimization.offload_optimizer.buffer_size=4096",
                                  "zero_optimization.stage3_param_persistence_threshold=0"};
    keys.insert(keys.end(), more.begin(), more.end());
    const TrainConfig config = make_train_config(Configuration::read(run.config(), keys), 1);
    const RankPlans plans = plan_ranks(config, BackendKind::local);
    return error_of([&] { check_memory_limit(config, BackendKind::local, plans); });
  };
  const std::string states = "zero_optimization.offload_optimizer.device";
  const std::string shards = "zero_optimization.offload_param.device";
  const std::string inputs = "recompute \"full\" with cpu_checkpointing: ";
  EXPECT_THAT(refusal({}), AllOf(HasSubstr(states + " \"cpu\": "), HasSubstr(inputs),
                                 HasSubstr(states + " \"cpu\" with " + shards + " \"cpu\": ")));
  EXPECT_THAT(refusal({states + "=cpu"}),
              AllOf(HasSubstr(shards + " \"cpu\": "), Not(HasSubstr(states + " \"cpu\""))));
  EXPECT_THAT(refusal({states + "=cpu", shards + "=cpu",
                       "activation_checkpointing.cpu_checkpointing=true"}),
              AllOf(Not(HasSubstr(shards)), Not(HasSubstr(inputs))));
}

}  // namespace
}  // namespace zero::testing
