// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/step_sums.h"
#include "partition/flat_layout.h"
#include "tests/case_names.h"
#include "tests/collectives/recorder.h"
#include "tests/engine/plain.h"
#include "tests/engine/toy_run.h"
#include "tests/support/combinations.h"

namespace zero {
namespace {

constexpr std::array kKinds = {Operation::all_gather, Operation::reduce_scatter,
                               Operation::all_reduce, Operation::all_to_all,
                               Operation::broadcast,  Operation::barrier};
constexpr std::int64_t kStepSumBytes = StepSums::kCount * 8;

void expect_equal(const TrafficCounter& found, const TrafficCounter& expected,
                  std::string_view what) {
  for (const Operation kind : kKinds)
    EXPECT_EQ(found.of(kind), expected.of(kind)) << what << " " << name_of(kind);
}

struct Case {
  int world;
  ReductionPolicy reduction;
  int accumulation_steps;
  std::optional<std::int64_t> threshold;  // unset: all parameters of these units stay whole
  DType gradient;
};

std::vector<Case> cases(int stage) {
  std::vector<Case> all;
  using Threshold = std::optional<std::int64_t>;
  for (const auto& [world, steps, threshold] :
       testing::cases_of({3, 2, 8, 1}, {2, 1, 4}, {Threshold(0), Threshold(), Threshold(400)})) {
    all.push_back({world, ReductionPolicy::every_micro_batch, steps, threshold, DType::bf16});
    if (stage <= 1)
      all.push_back({world, ReductionPolicy::boundary, steps, threshold, DType::fp32});
  }
  return all;
}

plain::Setup setup(int stage, const Case& c) {
  plain::Setup setup{plain::options(stage, DType::bf16), plain::odd_units(), c.accumulation_steps};
  setup.engine.reduction = c.reduction;
  setup.engine.limits.persistence_threshold = c.threshold;
  if (c.threshold == 0) setup.engine.limits.prefetch_elements = 0;  // no unit stays gathered
  setup.engine.gradient = c.gradient;
  return setup;
}

/// The formula of the design: each payload in its dtype, times (N-1)/N; with threshold 0.
TrafficCounter formula(const plain::Setup& setup, int world) {
  constexpr std::int64_t kCompute = 2;  // bf16
  const bool boundary = setup.engine.reduction == ReductionPolicy::boundary;
  const std::int64_t gradient = size_of(*setup.engine.gradient);
  const std::int64_t wire = boundary ? gradient : kCompute;
  const int reduces = boundary ? 1 : setup.accumulation_steps;
  TrafficCounter traffic;
  for (std::size_t unit = 0; unit < setup.units.size(); ++unit) {
    const FlatLayout layout(setup.units[unit].parameters, world, 0);
    const std::int64_t once = layout.padded() / world * (world - 1);  // elements sent
    const bool turns = unit + 1 == setup.units.size();  // last forward is followed by its backward
    switch (setup.engine.stage) {
      case 0:
        traffic.add(Operation::all_reduce, once * wire * reduces + once * gradient);
        break;
      case 3:
        traffic.add(Operation::reduce_scatter, once * wire * reduces);
        // Padding at the end of the last shards need not travel.
        traffic.add(Operation::all_gather, layout.tail_begin() * kCompute * (world - 1) / world *
                                               (turns ? 1 : 2) * setup.accumulation_steps);
        break;
      default:
        traffic.add(Operation::reduce_scatter, once * wire * reduces);
        traffic.add(Operation::all_gather, once * kCompute);
    }
  }
  traffic.add(Operation::all_reduce, 2 * kStepSumBytes * (world - 1) / world);
  return traffic;
}

class Traffic : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stage, Traffic, ::testing::Range(0, 4), zero::testing::kCaseName);

TEST_P(Traffic, IsTheFormulaAndThePlanInEveryStep) {
  for (const Case& c : cases(GetParam())) {
    SCOPED_TRACE(fmt::format("world {} {} steps {} threshold {}", c.world, name_of(c.reduction),
                             c.accumulation_steps, limit_text(c.threshold)));
    const plain::Setup run = setup(GetParam(), c);
    plain::run(c.world, run, [&](plain::Trainer& trainer, Communicator& communicator) {
      const TrafficCounter first = trainer.step().traffic;
      const TrafficCounter second = trainer.step().traffic;
      if (communicator.rank() != 0) return;
      expect_equal(first, second, "steps 1 and 2");
      expect_equal(second, trainer.engine().planned_axes().total(), "plan");
      if (c.threshold == 0) expect_equal(second, formula(run, c.world), "formula");
    });
  }
}

TEST_P(Traffic, OfAPlanIsThatOfARun) {
  const plain::Setup run =
      setup(GetParam(), {3, ReductionPolicy::every_micro_batch, 2, 400, DType::bf16});
  const auto communicator = planning::communicator(0, 3, BackendKind::mpi);
  const auto device = planning::open();
  plain::Trainer plan(*communicator, *device, run);
  plain::run(3, run, [&](plain::Trainer& trainer, Communicator& ranks) {
    const TrafficCounter traffic = trainer.step().traffic;
    if (ranks.rank() == 0) expect_equal(traffic, plan.engine().planned_axes().total(), "plan");
  });
}

/// Collectives of one steady step, as the wire saw them on rank 0.
std::vector<CollectiveRecord> records(int world, const plain::Setup& setup) {
  std::vector<CollectiveRecord> found;
  local::run(world, [&](Communicator& ranks) {
    testing::Recorder wire(ranks);
    const std::unique_ptr<Device> device = cpu::open();
    plain::Trainer trainer(ranks, *device, setup);
    trainer.step();
    wire.clear();
    const StepReport report = trainer.step();
    if (ranks.rank() != 0) return;
    found = wire.records();
    TrafficCounter heard;
    for (const CollectiveRecord& record : found) heard.add(record.counted_as, record.sent_bytes);
    expect_equal(report.traffic, heard, "report and wire");
  });
  return found;
}

plain::Setup many_small(int stage, int small) {
  plain::Setup setup{plain::options(stage, DType::bf16), {}, 1};
  setup.engine.limits.persistence_threshold = 100;
  for (int i = 0; i < 3; ++i) {
    plain::UnitSpec unit{fmt::format("layer.{}", i), {{"weight", {32, 32}}}};
    for (int j = 0; j < small; ++j) unit.parameters.push_back({fmt::format("bias.{}", j), {33}});
    setup.units.push_back(unit);
  }
  return setup;
}

TEST_P(Traffic, HasNoCollectivePerSmallParameter) {
  const std::size_t one = records(2, many_small(GetParam(), 1)).size();
  EXPECT_EQ(records(2, many_small(GetParam(), 20)).size(), one);
  // Per unit at most: a gather twice, a reduction, one more gather; and one sum for all.
  EXPECT_LE(one, 3U * 4U + 1U);
}

TEST_P(Traffic, ReducesUnitsInBackwardOrder) {
  std::vector<std::string> order;
  for (const CollectiveRecord& record : records(2, many_small(GetParam(), 2))) {
    if (record.operation == Operation::reduce_scatter) order.push_back(record.purpose);
  }
  EXPECT_THAT(order, ::testing::ElementsAre("layer.2", "layer.1", "layer.0"));
}

TEST_P(Traffic, OfGradientsIsBookedAsAllReduceAtStageZeroOnly) {
  for (const CollectiveRecord& record : records(2, many_small(GetParam(), 2))) {
    const Operation expected = GetParam() == 0 ? Operation::all_reduce : record.operation;
    EXPECT_EQ(record.counted_as, expected) << record.purpose;
  }
}

TEST_P(Traffic, OfABucketIsAtMostItsSizeAndTheBytesStay) {
  plain::Setup setup = many_small(GetParam(), 2);
  std::int64_t whole = 0;
  for (const CollectiveRecord& record : records(2, setup)) {
    if (record.operation == Operation::reduce_scatter) whole += record.total_bytes;
  }
  setup.engine.limits.reduce_bucket_elements = 300;
  std::int64_t cut = 0;
  for (const CollectiveRecord& record : records(2, setup)) {
    if (record.operation != Operation::reduce_scatter) continue;
    EXPECT_LE(record.total_bytes, 300 * 2);
    cut += record.total_bytes;
  }
  EXPECT_EQ(cut, whole);
}

TEST_P(Traffic, OfATiedModelIsThePlan) {
  for (const int steps : {1, 2}) {
    toy::Job run{
        .world = 3, .engine = toy::options(GetParam(), DType::bf16), .accumulation_steps = steps};
    run.engine.limits.prefetch_elements = 0;
    toy::with_engine(run, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
      for (int i = 0; i < 2; ++i) {
        const StepReport report = toy::step(engine, model, communicator, run, i);
        if (communicator.rank() == 0)
          expect_equal(report.traffic, engine.planned_axes().total(), "tied");
      }
      // The embedding: its forward and its head; three layers and the scale, which turn around the
      // head: twice each.
      EXPECT_EQ(engine.schedule().gathers, GetParam() == 3 ? 2 + 3 * 2 + 2 : 0);
    });
  }
}

TEST_P(Traffic, OfStepsIsNotDisturbedByReadingWritingHashingOrEvaluating) {
  plain::run(2, setup(GetParam(), {2, ReductionPolicy::every_micro_batch, 1, 0, DType::bf16}),
             [](plain::Trainer& trainer, Communicator& communicator) {
               Engine& engine = trainer.engine();
               const TrafficCounter plain = trainer.step().traffic;
               std::vector<float> values = plain::read(engine, "first.bias", StateKind::parameter);
               engine.states().write("first.bias", StateKind::parameter,
                                     View::of(std::span(values)));
               static_cast<void>(engine.states().hash());
               engine.begin_evaluation();
               trainer.forward();
               trainer.forward();
               engine.end_evaluation();
               engine.states().publish_parameters();
               const TrafficCounter disturbed = trainer.step().traffic;
               if (communicator.rank() == 0) expect_equal(disturbed, plain, "after other calls");
             });
}

constexpr std::array kMeshes = {MeshShape{2, 2, 1}, MeshShape{4, 1, 1}, MeshShape{1, 2, 2},
                                MeshShape{2, 3, 2}};

/// Reduces of a sum in fp32 across replicas: once for each gradient that crosses ranks.
std::int64_t across_replicas(const plain::Setup& setup) {
  const bool boundary = setup.engine.reduction == ReductionPolicy::boundary;
  std::int64_t elements = 0;
  for (const plain::UnitSpec& unit : setup.units)
    elements += FlatLayout(unit.parameters, setup.mesh.shard, 0).shard();
  return elements * 4 * 2 * (setup.mesh.replicate - 1) / setup.mesh.replicate *
         (boundary ? 1 : setup.accumulation_steps);
}

TEST_P(Traffic, OfAMeshIsThePlanAxisByAxis) {
  for (const MeshShape& mesh : kMeshes) {
    for (const ReductionPolicy reduction :
         {ReductionPolicy::every_micro_batch, ReductionPolicy::boundary}) {
      if (reduction == ReductionPolicy::boundary && GetParam() > 1) continue;
      SCOPED_TRACE(fmt::format("{} x {} x {}", mesh.replicate, mesh.shard, mesh.tensor));
      plain::Setup run = setup(GetParam(), {0, reduction, 2, 0, DType::bf16});
      run.mesh = mesh;
      if (mesh.tensor > 1) run.slicing = plain::odd_slices;
      const int world = mesh.ranks();
      plain::run(world, run, [&](plain::Trainer& trainer, Communicator&) {
        trainer.step();
        const StepReport report = trainer.step();
        const MeshTraffic plan = trainer.engine().planned_axes();
        for (const Axis axis : kAllAxes)
          expect_equal(report.axes.of(axis), plan.of(axis), name_of(axis));
        expect_equal(report.axes.across, plan.across, "across");
        expect_equal(report.traffic, report.axes.total(), "total");
        EXPECT_EQ(report.axes.of(Axis::tensor).total(), 0);
        // The norm goes over the world: where that is not one axis, it is no axis's.
        const bool one_axis = mesh.shard == 1;
        if (mesh.tensor == 1) {
          EXPECT_EQ(
              report.axes.of(Axis::replicate).of(Operation::all_reduce),
              across_replicas(run) + (one_axis ? 2 * kStepSumBytes * (world - 1) / world : 0));
        }
        EXPECT_EQ(report.axes.across.total(),
                  one_axis ? 0 : 2 * kStepSumBytes * (world - 1) / world);
      });
    }
  }
}

TEST(TrafficOfOneRank, IsNothing) {
  const plain::Setup one = setup(3, {1, ReductionPolicy::every_micro_batch, 2, 0, DType::bf16});
  plain::run(1, one, [](plain::Trainer& trainer, Communicator&) {
    EXPECT_EQ(trainer.step().traffic.total(), 0);
  });
}

}  // namespace
}  // namespace zero
