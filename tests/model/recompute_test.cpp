// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>

#include "tests/model/outcome.h"
#include "tests/model/recompute_plans.h"
#include "tests/support/test_device.h"

// What backward computes again changes no bit.
namespace zero::testing {
namespace {

struct Job {
  DecoderShape model = gpt2_of_blocks();
  DType compute = DType::fp32;
  MeshShape mesh{1, 1, 1};
  bool own_rows = false;
  int accumulation = 1;
  int stage = 0;
  StreamOrder order{};
  ScheduleLimits limits{};

  std::string label() const {
    return fmt::format("{}, {}, {} x {} x {}{}, {} micro-batches, stage {}", model.family->name,
                       name_of(compute), mesh.replicate, mesh.shard, mesh.tensor,
                       own_rows ? " with own rows" : "", accumulation, stage);
  }
};

void PrintTo(const Job& job, std::ostream* out) { *out << job.label(); }

struct Course {
  std::vector<double> losses;  // of micro-batches in their global order
  std::vector<double> norms;
  std::vector<double> evaluated;
  std::vector<float> logits;
  std::uint64_t state = 0;
  friend bool operator==(const Course&, const Course&) = default;
};

void train_rank(Communicator& world, const Job& job, const RecomputePlan& plan, Course& course) {
  const auto device = open(job.order);
  Mesh mesh(world, job.mesh);
  const int data = mesh.data().size();
  const EngineOptions options{
      .stage = job.stage, .compute = job.compute, .gradient_clipping = 1.0, .limits = job.limits};
  Training training(mesh, *device, options, job.model, kRowOfTokens, job.accumulation,
                    {.sequence_parallel = job.own_rows, .chunks = 2}, plan);
  const int micro_batches = data * job.accumulation;
  for (int step = 0; step < 2; ++step) {
    for (int j = 0; j < job.accumulation; ++j) {
      const int index = step * micro_batches + j * data + mesh.data().rank();
      const Batch batch = Batch::random(9, 23, static_cast<std::uint32_t>(index));
      const double loss = training.train(batch, 1.0F / static_cast<float>(9 * micro_batches));
      if (mesh.index(Axis::tensor) == 0) course.losses[static_cast<std::size_t>(index)] = loss;
    }
    const StepReport report = training.engine.step({.learning_rate = 1e-2});
    const double evaluated = training.evaluate(Batch::random(9, 23, 77));
    if (world.rank() != 0) continue;
    course.norms.push_back(report.gradient_norm);
    course.evaluated.push_back(evaluated);
  }
  std::vector<float> logits = training.next_logits(Batch::random(9, 23, 78), 5);
  const std::uint64_t state = training.engine.states().hash();
  if (world.rank() != 0) return;
  course.logits = std::move(logits);
  course.state = state;
}

Course train(const Job& job, const RecomputePlan& plan) {
  Course course;
  course.losses.resize(static_cast<std::size_t>(2 * job.accumulation * job.mesh.data_ranks()));
  local::run(job.mesh.ranks(), [&](Communicator& world) { train_rank(world, job, plan, course); });
  return course;
}

/// Every value of every choice at least once, and with most values of the others.
std::vector<Job> jobs() {
  const DType bf16 = DType::bf16;
  const DecoderShape separate = llama_of_blocks(tiny_llama());
  const DecoderShape tied = llama_of_blocks(tiny_qwen2());
  const DecoderShape gemma3 = as_gemma3(separate, 4);
  const DecoderShape normed = llama_of_blocks(tiny_qwen3());
  const StreamOrder lazy{.policy = StreamOrder::Policy::lazy};
  const StreamOrder apart{.policy = StreamOrder::Policy::lazy, .memory = MemorySpace::device};
  const auto seeded = [](std::uint64_t seed) {
    return StreamOrder{.policy = StreamOrder::Policy::seeded, .seed = seed};
  };
  const ScheduleLimits near{.persistence_threshold = 0, .reuse_distance = 1'000'000};
  const ScheduleLimits tight{
      .prefetch_elements = 0, .live_elements = 0, .persistence_threshold = 0};
  const ScheduleLimits plain{.persistence_threshold = 0};
  return {
      {.accumulation = 3, .stage = 3, .order = lazy, .limits = plain},
      {.compute = bf16, .mesh = {1, 2, 1}, .accumulation = 3, .stage = 2, .order = seeded(1)},
      {.model = separate, .mesh = {1, 4, 1}, .stage = 3, .order = seeded(2), .limits = near},
      {.model = tied, .compute = bf16, .mesh = {1, 8, 1}, .stage = 1},
      {.model = separate,
       .compute = bf16,
       .mesh = {1, 2, 1},
       .stage = 3,
       .order = apart,
       .limits = tight},
      {.mesh = {1, 1, 2}, .accumulation = 3, .stage = 3, .order = lazy, .limits = plain},
      {.mesh = {1, 2, 2}, .own_rows = true, .stage = 3, .order = seeded(3), .limits = plain},
      {.model = separate,
       .compute = bf16,
       .mesh = {1, 1, 2},
       .own_rows = true,
       .accumulation = 3,
       .stage = 0,
       .order = apart},
      {.model = tied, .mesh = {2, 2, 2}, .stage = 3, .limits = near},
      {.model = tied, .mesh = {1, 1, 1}, .accumulation = 1, .stage = 0, .order = seeded(4)},
      {.model = normed, .mesh = {1, 2, 2}, .own_rows = true, .stage = 3, .order = seeded(5)},
      {.model = normed, .compute = bf16, .mesh = {1, 1, 2}, .stage = 1, .order = apart},
      {.model = gemma3, .mesh = {1, 2, 2}, .own_rows = true, .stage = 3, .order = seeded(6)},
      {.model = gemma3, .compute = bf16, .mesh = {1, 1, 2}, .stage = 1, .order = apart},
      {.model = gemma3, .mesh = {1, 2, 1}, .accumulation = 3, .stage = 2, .order = lazy},
      {.compute = DType::fp16, .mesh = {1, 2, 1}, .stage = 3, .order = lazy, .limits = plain},
  };
}

class Recompute : public ::testing::TestWithParam<Job> {};

TEST_P(Recompute, ChangesNoLossNormOrState) {
  const Job& job = GetParam();
  Job plain = job;  // the streams and limits of others change no bit either
  plain.order = {};
  plain.limits = {};
  const Course expected = train(plain, {});
  EXPECT_EQ(expected.norms.size(), 2U);
  for (const RecomputePlan& plan : recompute_plans()) {
    EXPECT_EQ(train(job, plan), expected) << job.label() << "; " << plan.text();
  }
}

/// A plan for each way of a kept input: of every block, of some, of groups, of shares.
std::vector<RecomputePlan> plans_on_host() {
  return {on_host(RecomputePlan::full(kBlocks)), on_host(RecomputePlan::full(kBlocks, 2)),
          on_host(RecomputePlan::grouped(kBlocks, 3)),
          on_host(partitioned_plan(RecomputePlan::full(kBlocks))),
          on_host(testing::with_outputs(partitioned_plan(RecomputePlan::full(kBlocks))))};
}

TEST_P(Recompute, OfInputsInHostMemoryChangesNoLossNormOrState) {
  Job job = GetParam();
  Job plain = job;
  plain.order = {};
  plain.limits = {};
  const Course expected = train(plain, {});
  job.order.memory = MemorySpace::device;
  for (const RecomputePlan& plan : plans_on_host()) {
    EXPECT_EQ(train(job, plan), expected) << job.label() << "; " << plan.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, Recompute, ::testing::ValuesIn(jobs()),
                         [](const auto& tested) { return fmt::format("Job{}", tested.index); });

}  // namespace
}  // namespace zero::testing
