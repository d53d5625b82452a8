// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/closed_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "launch/plan/exact_plan.h"
#include "launch/plan/model_states.h"
#include "launch/plan/written_config.h"
#include "tests/launch/drawn.h"
#include "tests/launch/planned_question.h"

// The formulas beside the engine's own plans.
namespace zero::testing {
namespace {

std::string model_text(Draw& draw) {
  const std::string sizes =
      fmt::format("layers={},width={},heads=8,context=512,vocabulary={}", draw.number(2, 12),
                  256 * draw.number(1, 3), draw.number(4096, 13000));
  if (draw.once_in(2)) return sizes;
  return fmt::format("family=llama,{},kv_heads={},intermediate={}", sizes,
                     draw.one_of<int>({2, 4, 8}), 64 * draw.number(8, 32));
}

TrainingQuestion question_of(Draw& draw) {
  TrainingQuestion drawn =
      question_about(model_text(draw), draw.one_of<int>({1, 1, 2}), draw.one_of<int>({1, 2, 4, 8}),
                     80'000'000'000, 64 * draw.number(1, 8));
  drawn.machine.kind = draw.one_of<DeviceKind>({DeviceKind::cpu, DeviceKind::cuda});
  drawn.axes.accumulations = {1, 2, 4, 5};
  std::vector<Tier> tiers{Tier::device, Tier::file};
  if (drawn.machine.kind == DeviceKind::cuda) {
    tiers.push_back(Tier::host);
    drawn.axes.kept_inputs = {KeptInputPlace::device, KeptInputPlace::host};
  }
  drawn.axes.offloads.clear();
  for (const Tier states : tiers) {
    for (const Tier shards : tiers) drawn.axes.offloads.push_back({states, shards});
  }
  return drawn;
}

double off(double found, double expected) {
  return expected == 0 ? std::abs(found) : std::abs(found / expected - 1);
}

TEST(ClosedForms, AreWithinAPercentOfTheEnginesPlans) {
  Draw draw;
  SCOPED_TRACE(fmt::format("seed {}", draw.seed()));
  BytesByClass worst{};  // bytes by which a class was off
  for (int i = 0; i < 30; ++i) {
    const TrainingQuestion question = question_of(draw);
    const Candidate candidate = draw.one_of(candidates(question));
    const std::vector<std::string> keys = candidate.offload == Offload{}
                                              ? std::vector<std::string>{}
                                              : drawn_tier_keys(draw, candidate);
    SCOPED_TRACE(fmt::format("{} {}", written_configuration(question, candidate).dump(),
                             fmt::join(keys, " ")));
    const TrainConfig config = config_with_keys(question, candidate, keys);
    const ExactPlan plan = exact_plan(config, question.machine.backend());
    ClosedForms forms(config, question.machine);
    const MemoryUse closed = forms.memory(candidate);
    EXPECT_LE(
        off(static_cast<double>(closed.bounded()), static_cast<double>(plan.memory.bounded())),
        0.01);
    for (std::size_t c = 0; c < worst.size(); ++c) {
      worst[c] = std::max(worst[c], std::abs(closed.ledger[c] - plan.memory.ledger[c]));
    }
    EXPECT_EQ(closed.file, plan.memory.file);
    EXPECT_LE(off(static_cast<double>(closed.host), static_cast<double>(plan.memory.host)), 0.01);
    const StepWork work = forms.work(candidate);
    for (const Axis axis : kAllAxes) {
      EXPECT_LE(off(work.along(axis), static_cast<double>(plan.traffic.of(axis).total())), 0.01)
          << name_of(axis);
    }
  }
  for (const MemoryClass c : all_memory_classes()) {
    fmt::print("{}: off by at most {} bytes\n", name_of(c), at(worst, c));
  }
}

// Query, key and value matrices of 12,288 elements on the tensor rank with two of three query
// heads, and of 9,216 on the other, which alone keeps them whole.
TEST(ClosedForms, KnowTensorRanksOfUnlikeShares) {
  const TrainingQuestion question = question_about(
      "family=llama,layers=4,width=96,heads=3,kv_heads=1,intermediate=112,context=64,vocabulary="
      "709",
      1, 4, 80'000'000'000, 8);
  const Candidate candidate{.stage = 3, .mesh = {1, 2, 2}, .compute = DType::bf16};
  const TrainConfig config = config_with_keys(
      question, candidate, {"zero_optimization.stage3_param_persistence_threshold=10498"});
  const ExactPlan plan = exact_plan(config, question.machine.backend());
  EXPECT_EQ(
      at(ClosedForms(config, question.machine).memory(candidate).ledger, MemoryClass::parameters),
      at(plan.memory.ledger, MemoryClass::parameters));
}

// Of blocks of 805 million elements two are more than DeepSpeed's limit.
TEST(ClosedForms, KnowTheWindowsOfLargeBlocks) {
  const TrainingQuestion question = question_about(
      "layers=6,width=8192,heads=64,context=64,vocabulary=709", 8, 8, 80'000'000'000, 64);
  const Candidate candidate{.stage = 3, .mesh = {1, 64, 1}, .compute = DType::bf16};
  constexpr std::int64_t kBlock = std::int64_t{12} * 8192 * 8192;
  const auto gathered = [&](const std::vector<std::string>& keys) {
    const TrainConfig config = config_with_keys(question, candidate, keys);
    const ExactPlan plan = exact_plan(config, question.machine.backend());
    const std::int64_t planned = at(plan.memory.ledger, MemoryClass::gathered);
    const MemoryUse closed = ClosedForms(config, question.machine).memory(candidate);
    EXPECT_LE(off(static_cast<double>(at(closed.ledger, MemoryClass::gathered)),
                  static_cast<double>(planned)),
              0.01);
    return planned;
  };
  const std::int64_t bounded = gathered({"zero_optimization.stage3_max_live_parameters=1e9"});
  EXPECT_NEAR(static_cast<double>(gathered({}) - bounded), 2.0 * kBlock, 0.05 * kBlock);
}

TEST(ClosedForms, KnowWhatStaysInMemoryOfShardsThatAreAway) {
  TrainingQuestion question = question_about(kSmallModel, 1, 2, 80'000'000'000, 64);
  for (const auto& [device, tier] : {std::pair(DeviceKind::cpu, Tier::file),
                                     {DeviceKind::cuda, Tier::host},
                                     {DeviceKind::cuda, Tier::file}}) {
    question.machine.kind = device;
    const Candidate candidate{
        .stage = 3, .mesh = {1, 2, 1}, .compute = DType::bf16, .offload = {Tier::device, tier}};
    for (const auto& [in_memory, buffers] :
         {std::pair(0, 2), {150'000, 9}, {700'000, 2}, {1'000'000'000, 1}}) {
      const std::string section = "zero_optimization.offload_param.";
      const TrainConfig config =
          config_with_keys(question, candidate,
                           {fmt::format("{}max_in_cpu={}", section, in_memory),
                            fmt::format("{}buffer_count={}", section, buffers)});
      SCOPED_TRACE(fmt::format("{} in memory, of {}", in_memory,
                               device == DeviceKind::cpu ? "a CPU" : "a GPU"));
      const ExactPlan plan = exact_plan(config, question.machine.backend());
      const MemoryUse closed = ClosedForms(config, question.machine).memory(candidate);
      EXPECT_EQ(closed.file, plan.memory.file);
      EXPECT_EQ(at(closed.ledger, MemoryClass::parameters),
                at(plan.memory.ledger, MemoryClass::parameters));
      EXPECT_EQ(at(closed.device.arenas, MemoryClass::parameters),
                at(plan.memory.device.arenas, MemoryClass::parameters));
      EXPECT_LE(off(static_cast<double>(at(closed.ledger, MemoryClass::staging)),
                    static_cast<double>(at(plan.memory.ledger, MemoryClass::staging))),
                0.01);
    }
  }
}

// Two windows of ten inputs of 2 x 64 x 256 elements stay: eight go to the host and come back.
TEST(ClosedForms, KnowInputsInHostMemory) {
  TrainingQuestion question = question_about(
      "layers=10,width=256,heads=8,context=256,vocabulary=5000", 1, 1, 80'000'000'000, 64);
  Candidate candidate{.micro = 2,
                      .accumulation = 3,
                      .recompute = {RecomputeChoice::Kind::interval, 1},
                      .mesh = {1, 1, 1},
                      .compute = DType::bf16};
  const auto planned = [&](KeptInputPlace place) {
    candidate.kept_inputs = place;
    const TrainConfig config = config_of(question, candidate);
    EXPECT_EQ(config.recompute.plan.inputs_on_host, place == KeptInputPlace::host);
    ClosedForms forms(config, question.machine);
    const MemoryUse plan = exact_plan(config, question.machine.backend()).memory;
    const MemoryUse closed = forms.memory(candidate);
    EXPECT_EQ(closed.host, plan.host);
    EXPECT_EQ(closed.device.arenas, plan.device.arenas);
    return std::pair(plan, forms.work(candidate).copied);
  };
  const auto [without, none] = planned(KeptInputPlace::device);
  const auto [with, copied] = planned(KeptInputPlace::host);
  constexpr std::int64_t kInputs = 8 * 2 * 64 * 256 * 2;
  EXPECT_EQ(with.host - without.host, kInputs);
  EXPECT_EQ(at(without.device.arenas, MemoryClass::activations) -
                at(with.device.arenas, MemoryClass::activations),
            kInputs);
  EXPECT_EQ(none, 0);
  EXPECT_EQ(copied, 3.0 * 2 * kInputs);
}

TEST(ClosedForms, KnowStatesInHostMemoryAndTheirWindows) {
  const TrainingQuestion question = question_about(kSmallModel, 1, 2, 80'000'000'000, 64);
  for (const int stage : {0, 3}) {
    for (const MomentFormat moments :
         {MomentFormat::fp32, MomentFormat::bf16, MomentFormat::eight_bit}) {
      const Candidate candidate{.stage = stage,
                                .mesh = {1, 2, 1},
                                .moments = moments,
                                .compute = DType::bf16,
                                .offload = {.optimizer = Tier::host}};
      const TrainConfig config = config_of(question, candidate);
      const ExactPlan plan = exact_plan(config, question.machine.backend());
      const MemoryUse closed = ClosedForms(config, question.machine).memory(candidate);
      constexpr MemoryClass kStates = MemoryClass::optimizer;
      EXPECT_EQ(at(closed.ledger, kStates), at(plan.memory.ledger, kStates));
      EXPECT_EQ(at(closed.device.arenas, kStates), at(plan.memory.device.arenas, kStates));
      EXPECT_LE(off(static_cast<double>(at(closed.device.arenas, MemoryClass::staging)),
                    static_cast<double>(at(plan.memory.device.arenas, MemoryClass::staging))),
                0.01);
      EXPECT_GT(plan.memory.on_host(), 6 * question.model.parameter_count() / (stage == 0 ? 1 : 2));
    }
  }
}

// In bf16 12 bytes of states pass both ways, a shard of 2 back; in fp32 it is the master, beside 8.
TEST(ClosedForms, CountWhatAStepMoves) {
  TrainingQuestion question = question_about(kSmallModel, 1, 2, 80'000'000'000, 64);
  Candidate candidate{.stage = 3, .accumulation = 4, .mesh = {1, 2, 1}, .compute = DType::bf16};
  const auto shard = static_cast<double>(question.model.parameter_count()) / 2;
  const auto work = [&](const Offload& offload) {
    candidate.offload = offload;
    const TrainConfig config = config_with_keys(
        question, candidate, {"zero_optimization.stage3_param_persistence_threshold=0"});
    return ClosedForms(config, question.machine).work(candidate);
  };
  const auto expect = [&](const Offload& offload, double copied, double filed) {
    const StepWork found = work(offload);
    EXPECT_LE(off(found.copied, copied), 0.01);
    EXPECT_LE(off(found.filed, filed), 0.01);
  };
  expect({}, 0, 0);
  expect({.optimizer = Tier::host}, 24 * shard, 0);
  expect({.optimizer = Tier::file}, 24 * shard, 24 * shard);
  // The embedding is gathered twice in a micro-batch too: for its forward, and for the head's both.
  const double gathered = 4 * 2 * 2 * shard;
  expect({Tier::host, Tier::host}, 26 * shard + gathered, 0);
  expect({Tier::host, Tier::file}, 26 * shard + gathered, 2 * shard + gathered);
  expect({Tier::device, Tier::file}, 2 * shard + gathered, 2 * shard + gathered);
  candidate.compute = DType::fp32;
  expect({Tier::host, Tier::host}, 24 * shard + 2 * gathered, 0);
  expect({Tier::device, Tier::host}, 8 * shard + 2 * gathered, 0);
  question.machine.kind = DeviceKind::cpu;
  expect({Tier::file, Tier::file}, 0, 24 * shard + 2 * gathered);
}

// 4 parameters' bytes written out: two blocks are enough to see each term.
TEST(ClosedForms, StatesOfAStageAreSharesOfItsElements) {
  TrainingQuestion question = question_about(kSmallModel, 1, 4, 80'000'000'000, 64);
  const Candidate plain{.stage = 0, .mesh = {1, 4, 1}, .compute = DType::bf16};
  const TrainConfig config = config_of(question, plain);
  ClosedForms forms(config, question.machine);
  // Every parameter of this model is a multiple of 64 elements, of 4 shards in all.
  const std::int64_t all = question.model.parameter_count();
  const auto bytes = [&](int stage, MemoryClass c) {
    Candidate candidate = plain;
    candidate.stage = stage;
    return static_cast<double>(at(forms.memory(candidate).ledger, c));
  };
  const auto expect = [&](int stage, MemoryClass c, double each) {
    EXPECT_LE(off(bytes(stage, c), each * static_cast<double>(all)), 2e-3)
        << stage << " " << name_of(c);
  };
  for (const int stage : {0, 1, 2, 3}) {
    expect(stage, MemoryClass::gradients, stage < 2 ? 2.0 : 2.0 / 4);
    expect(stage, MemoryClass::optimizer, stage < 1 ? 12.0 : 12.0 / 4);
  }
  for (const int stage : {0, 1, 2}) expect(stage, MemoryClass::parameters, 2.0);
}

TEST(ModelStates, AreThoseOfTheZeroPaper) {
  // Rajbhandari et al. 2020, figure 1: 7.5 billion parameters over 64 ranks.
  constexpr std::int64_t kCount = 7'500'000'000;
  EXPECT_EQ(model_states(kCount, 0, 64).total(), 16 * kCount);                    // 120 GB
  EXPECT_EQ(model_states(kCount, 1, 64).total(), 4 * kCount + 12 * kCount / 64);  // 31.4
  EXPECT_EQ(model_states(kCount, 2, 64).total(), 2 * kCount + 14 * kCount / 64);  // 16.6
  EXPECT_EQ(model_states(kCount, 3, 64).total(), 16 * kCount / 64);               // 1.9
  EXPECT_EQ(model_states(1000, 0, 1, DType::fp32).total(), 16'000);
  EXPECT_EQ(model_states(1024, 0, 1, DType::bf16, MomentFormat::eight_bit).optimizer,
            4 * 1024 + 2 * (1024 + 4 * 4));
  EXPECT_EQ(model_states(10, 3, 4).parameters, 2 * 3);  // the fullest share
}

}  // namespace
}  // namespace zero::testing
