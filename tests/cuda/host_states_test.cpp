// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Optimizer states of the emulated GPU in pinned host memory give the bits of those in its own.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cuda/tiered_runs.h"
#include "tests/engine/small_windows.h"
#include "tests/model/outcome.h"

namespace zero::testing {
namespace {

using cuda::emulated::Settings;

EngineOptions states_of_host(EngineOptions options, int buffers = 2) {
  options.tiers = host_windows(buffers);
  return options;
}

Outcome outcome_with_states(int ranks, const EngineOptions& engine, const Settings& settings) {
  cuda::emulated::reset(settings);
  // Units of several windows of 4096 elements.
  const DecoderShape model = tiny_gpt2({{"width", 32}, {"heads", 4}});
  Outcome outcome = outcome_of(model, 4, ranks, engine, [] { return cuda::open(); });
  cuda::emulated::reset();
  return outcome;
}

using Types = std::tuple<DType, MomentFormat>;
class StatesInPinnedMemory : public ::testing::TestWithParam<Types> {};

TEST_P(StatesInPinnedMemory, ChangeNoBit) {
  const auto& [dtype, moments] = GetParam();
  const Outcome expected = outcome_with_states(1, gpu_options(0, dtype, moments), {});
  for (const auto& [stage, ranks] : {std::pair(0, 2), {1, 2}, {2, 1}, {3, 2}}) {
    const Settings settings{
        .order = stage % 2 == 0 ? Settings::Order::seeded : Settings::Order::lazy,
        .seed = static_cast<std::uint64_t>(stage)};
    const EngineOptions engine = states_of_host(gpu_options(stage, dtype, moments), 1 + stage);
    EXPECT_EQ(outcome_with_states(ranks, engine, settings), expected)
        << "stage " << stage << ", " << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, StatesInPinnedMemory,
                         ::testing::Values(Types{DType::fp32, MomentFormat::fp32},
                                           Types{DType::bf16, MomentFormat::fp32},
                                           Types{DType::bf16, MomentFormat::bf16},
                                           Types{DType::fp16, MomentFormat::eight_bit}),
                         [](const auto& tested) {
                           return fmt::format("{}_Moments{}", name_of(std::get<0>(tested.param)),
                                              name_of(std::get<1>(tested.param)));
                         });

TEST(PinnedStates, TakeTheMemoryThatWasPlanned) {
  for (const MomentFormat moments : {MomentFormat::fp32, MomentFormat::eight_bit}) {
    for (const double ratio : {1.0, 0.5}) {
      cuda::emulated::reset({});
      local::run(2, [&](Communicator& ranks) {
        EngineOptions engine = states_of_host(gpu_options(3, DType::bf16, moments));
        engine.tiers.optimizer_ratio = ratio;
        const auto none = planning::open(1, MemorySpace::device, DeviceKind::cuda);
        const auto nobody = planning::communicator(ranks.rank(), ranks.size(), ranks.backend());
        const Training plan(*nobody, *none, engine, tiny_llama(), {2, 7}, 2);

        const auto device = cuda::open({.reserve = none->device_bytes().arenas});
        Training training(ranks, *device, engine, tiny_llama(), {2, 7}, 2);
        for (int step = 0; step < 2; ++step) {
          for (int j = 0; j < 2; ++j) training.train(Batch::random(14, 23, 1), 1.0F / 56);
          training.engine.step({.learning_rate = 1e-2});
        }
        EXPECT_EQ(device->ledger().snapshot().peak, none->ledger().snapshot().peak);
        for (const MemoryClass of : {MemoryClass::optimizer, MemoryClass::staging}) {
          EXPECT_EQ(at(device->device_bytes().arenas, of), at(none->device_bytes().arenas, of));
        }
        EXPECT_EQ(at(device->device_bytes().arenas, MemoryClass::optimizer) == 0,
                  ratio == 1 && moments == MomentFormat::fp32);
      });
      cuda::emulated::reset();
    }
  }
}

// Ranks of a save send each other values of their states through buffers of the GPU.
TEST(PinnedStates, OfARunAreAsPlannedAndSavedForAnyTier) {
  const std::string on_host = "zero_optimization.offload_optimizer.device=cpu";
  const std::vector<std::string> keys{"zero_optimization.stage=2", "optimizer.params.moments=8bit"};
  const TinyRun whole;
  const nlohmann::json expected = last_of(whole, {keys[0], keys[1], "run.steps=4"});
  for (const bool first : {true, false}) {
    const TinyRun run;
    for (const bool second_half : {false, true}) {
      std::vector<std::string> half = keys;
      half.push_back("run.checkpoint.folder=" + run.folder().path("ck"));
      half.emplace_back("run.checkpoint.every_steps=1");
      half.emplace_back(second_half ? "run.steps=4" : "run.steps=2");
      if (first != second_half) half.push_back(on_host);
      const nlohmann::json last = last_of(run, half);
      EXPECT_EQ(last["plan_exact"], true) << last["device"];
      if (second_half) {
        EXPECT_EQ(last["state_hash"], expected["state_hash"]);
      }
    }
  }
}

// Graphs hold passes of the model; the update and its copies lie between them.
TEST(PinnedStates, AreInNoGraph) {
  const auto graphs = [](const EngineOptions& engine) {
    cuda::emulated::reset({});
    std::string counted;
    local::run(1, [&](Communicator& alone) {
      const auto device = cuda::open();
      Training training(alone, *device, engine, tiny_gpt2(), {2, 7}, 2);
      for (int step = 0; step < 3; ++step) {
        for (int j = 0; j < 2; ++j) training.train(Batch::random(14, 23, 1), 1.0F / 56);
        training.engine.step({.learning_rate = 1e-2});
      }
      const CaptureCounts captured = training.engine.captured_graphs();
      counted = fmt::format("{} of {}, {} refused {}", captured.graphs, captured.nodes,
                            captured.refused, captured.refusal);
    });
    cuda::emulated::reset();
    return counted;
  };
  const EngineOptions engine = gpu_options(3, DType::bf16, MomentFormat::fp32);
  EXPECT_EQ(graphs(states_of_host(engine)), graphs(engine));
}

}  // namespace
}  // namespace zero::testing
