// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <string>

#include "engine/step_sums.h"
#include "partition/flat_layout.h"
#include "tests/engine/plain.h"
#include "tests/support/combinations.h"

namespace zero {
namespace {

struct Types {
  DType compute;
  DType gradient;
};
constexpr std::array kTypes = {Types{DType::fp32, DType::fp32}, Types{DType::bf16, DType::bf16},
                               Types{DType::bf16, DType::fp32}, Types{DType::fp16, DType::fp16}};
constexpr std::int64_t kStepSumBytes = StepSums::kCount * 8;

plain::Setup setup(int stage, Types types, int accumulation_steps = 1) {
  plain::Setup setup{plain::options(stage, types.compute), plain::odd_units(), accumulation_steps};
  setup.engine.gradient = types.gradient;
  return setup;
}

/// What a plan says: seals on a device without memory.
MemorySnapshot planned(int rank, int world, const plain::Setup& setup,
                       BackendKind backend = BackendKind::local) {
  const auto communicator = planning::communicator(rank, world, backend);
  const auto device = planning::open(1, setup.memory);
  const plain::Trainer trainer(*communicator, *device, setup);
  return device->ledger().snapshot();
}

struct Elements {
  std::int64_t padded = 0;
  std::int64_t kept = 0;  ///< of compute copies at stage 3: shards and tails, or whole units
};

/// Elements of all flat layouts, from the partition room alone.
Elements elements_of(const plain::Setup& setup, int world) {
  Elements sum;
  for (const plain::UnitSpec& unit : setup.units) {
    const bool blocks = setup.engine.optimizer.moments == MomentFormat::eight_bit;
    const FlatLayout layout(unit.parameters, world, *setup.engine.limits.persistence_threshold,
                            blocks ? kMomentBlock : kAlignment);
    sum.padded += layout.padded();
    sum.kept += layout.tail_begin() > 0 ? layout.shard() + layout.tail() : layout.padded();
  }
  return sum;
}

/// The design's table: bytes of parameters, gradients and optimizer states, by stage.
void expect_table(const MemorySnapshot& snapshot, const plain::Setup& setup, int world) {
  const Elements elements = elements_of(setup, world);
  const int stage = setup.engine.stage;
  const std::int64_t shard = elements.padded / world;
  const std::int64_t compute = size_of(setup.engine.compute);
  const std::int64_t gradient = size_of(*setup.engine.gradient);
  const std::int64_t master = setup.engine.compute == DType::fp32 ? 0 : 4;
  const MomentFormat moments = setup.engine.optimizer.moments;
  const std::int64_t of_moments = moments == MomentFormat::fp32   ? 8 * 256
                                  : moments == MomentFormat::bf16 ? 4 * 256
                                                                  : 2 * 256 + 8;  // of 256 elements
  const int held = std::bit_width(static_cast<unsigned>(setup.accumulation_steps)) - 1;
  const std::int64_t sums =
      setup.engine.gradient == DType::fp32 ? std::max(0, held - 1) : std::max(0, held);
  EXPECT_EQ(snapshot.current_of(MemoryClass::parameters),
            compute * (stage >= 3 ? elements.kept : elements.padded));
  EXPECT_EQ(snapshot.current_of(MemoryClass::gradients),
            gradient * (stage >= 2 ? shard : elements.padded) + sums * 4 * shard);
  EXPECT_EQ(snapshot.current_of(MemoryClass::optimizer),
            (master * 256 + of_moments) * (stage >= 1 ? shard : elements.padded) / 256);
}

void expect_as_planned(int world, const plain::Setup& run);

TEST(Memory, OfModelStatesIsTheTableForEveryStageWorldAndType) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (int world = 1; world <= 16; ++world) {
      for (const Types types : kTypes) {
        SCOPED_TRACE(fmt::format("stage {} world {} {} {}", stage, world, name_of(types.compute),
                                 name_of(types.gradient)));
        const plain::Setup plan = setup(stage, types);
        expect_table(planned(world - 1, world, plan), plan, world);
      }
    }
  }
}

TEST(Memory, OfSmallMomentsIsTheTableAndThePlanToTheByte) {
  for (const auto& [moments, stage, world] :
       testing::cases_of({MomentFormat::eight_bit, MomentFormat::bf16}, {3, 2, 1, 0}, {3, 4, 1})) {
    for (const Types types : kTypes) {
      plain::Setup run = setup(stage, types);
      run.engine.optimizer.moments = moments;
      run.engine.limits.persistence_threshold = 30;
      expect_table(planned(world - 1, world, run), run, world);
      expect_as_planned(world, run);
    }
  }
}

TEST(Memory, OfPaddingIsWhatTheEngineCounts) {
  for (const int world : {1, 3, 16}) {
    const plain::Setup plan = setup(3, kTypes[0]);
    const auto communicator = planning::communicator(0, world, BackendKind::local);
    const auto device = planning::open();
    plain::Trainer trainer(*communicator, *device, plan);
    EXPECT_EQ(trainer.engine().parameter_count() + trainer.engine().padding_count(),
              elements_of(plan, world).padded);
    EXPECT_EQ(trainer.engine().parameter_count(), 31 * 17 + 29 * 13 + 26 + 42 * 11 + 1 + 15 * 67);
  }
}

TEST(Memory, OfWholeSmallParametersIsOneComputeCopyAtMostBesideShardsAtStageThree) {
  for (int stage = 0; stage <= 3; ++stage) {
    for (const int world : {1, 2, 7}) {
      for (const std::int64_t threshold : {13, 460, 1'000'000}) {
        plain::Setup plan = setup(stage, kTypes[1]);
        plan.engine.limits.persistence_threshold = threshold;
        expect_table(planned(0, world, plan), plan, world);
      }
    }
  }
}

TEST(Memory, OfAccumulationIsOneShardPerDoubling) {
  for (const Types types : kTypes) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const int steps : {1, 2, 3, 4, 7, 8, 9, 64}) {
        SCOPED_TRACE(fmt::format("stage {} steps {}", stage, steps));
        const plain::Setup plan = setup(stage, types, steps);
        expect_table(planned(1, 3, plan), plan, 3);
      }
    }
  }
}

/// A step of every rank uses what was planned for it.
void expect_as_planned(int world, const plain::Setup& run) {
  plain::run(world, run, [&](plain::Trainer& trainer, Communicator& communicator) {
    trainer.step();
    const MemorySnapshot real = trainer.engine().device().ledger().snapshot();
    const MemorySnapshot plan = planned(communicator.rank(), world, run);
    for (const MemoryClass c : all_memory_classes()) {
      EXPECT_EQ(real.current_of(c), plan.current_of(c)) << name_of(c);
      EXPECT_EQ(real.peak_of(c), plan.peak_of(c)) << name_of(c);
    }
  });
}

TEST(Memory, OfARunIsThePlanInEveryClassToTheByte) {
  for (const auto& [stage, world] : testing::cases_of({3, 2, 1, 0}, {3, 16, 1})) {
    for (const Types types : kTypes) {
      plain::Setup run = setup(stage, types, world == 3 ? 5 : 1);
      expect_as_planned(world, run);
      if (world != 3) continue;
      run.memory = MemorySpace::device;
      expect_as_planned(world, run);
    }
  }
}

TEST(Memory, OfARunOnAMeshIsThePlanToo) {
  for (const auto& [mesh, stage] : testing::cases_of(
           {MeshShape{2, 2, 2}, MeshShape{3, 1, 1}, MeshShape{2, 2, 1}}, {3, 2, 1, 0})) {
    for (const Types types : kTypes) {
      plain::Setup run = setup(stage, types, 3);
      run.mesh = mesh;
      if (mesh.tensor > 1) run.slicing = plain::odd_slices;
      expect_as_planned(mesh.ranks(), run);
    }
  }
}

/// One unit of 400 columns, ten of 101: of two ranks each keeps 1,010/2 + 400/2 and windows of 400
/// and 2 x 101 if all are gathered (1,307), 1,010/2 + 400 and windows of 3 x 101 if the large one
/// stays whole (1,208), 1,410 if all do.
plain::Setup large_and_small(int stage, DType compute) {
  plain::Setup setup{plain::options(stage, compute), plain::equal_units(11, 101 * 1024), 2};
  setup.units[0].parameters[0].shape = {400 * 1024};
  setup.engine.limits = {};
  setup.engine.gradient = compute;
  return setup;
}

TEST(Memory, OfAUnitThatStaysWholeIsThePlanAndNoBitChanges) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const plain::Setup run = large_and_small(3, compute);
    const MemorySnapshot plan = planned(0, 2, run);
    EXPECT_EQ(plan.current_of(MemoryClass::parameters), (1010 / 2 + 400) * 1024 * size_of(compute));
    const MemorySnapshot two = planned(0, 2, large_and_small(2, compute));
    EXPECT_EQ(two.current_of(MemoryClass::gathered) + 3 * 101 * 1024 * size_of(compute),
              plan.current_of(MemoryClass::gathered));
    expect_as_planned(2, run);
    EXPECT_EQ(plain::train(2, run, 2), plain::train(2, large_and_small(0, compute), 2));
  }
}

TEST(Memory, OfSumsAcrossReplicasIsOneChunkOfAShardAndNoneWithoutReplicas) {
  plain::Setup plan = setup(3, kTypes[1]);
  plan.units = plain::equal_units(2, 4096);
  const std::int64_t alone =
      planned(0, 2, plan, BackendKind::mpi).peak_of(MemoryClass::communication);
  plan.mesh = {2, 2, 1};
  EXPECT_EQ(planned(0, 4, plan, BackendKind::mpi).peak_of(MemoryClass::communication),
            alone + 2048 * 4);
  plan.units = plain::equal_units(2, 50'000'000);
  EXPECT_EQ(planned(0, 4, plan, BackendKind::local).peak_of(MemoryClass::communication),
            kStepSumBytes + (8 << 20));
}

TEST(Memory, OfAPlanThatWalksWholeStepsStaysAsItWas) {
  for (int stage = 0; stage <= 3; ++stage) {
    const plain::Setup plan = setup(stage, kTypes[1], 2);
    const auto communicator = planning::communicator(1, 4, BackendKind::mpi);
    const auto device = planning::open();
    plain::Trainer trainer(*communicator, *device, plan);
    const MemorySnapshot sealed = device->ledger().snapshot();
    EXPECT_EQ(trainer.step().step, 1);
    EXPECT_EQ(trainer.step().traffic.total(), trainer.engine().planned_axes().total().total());
    EXPECT_EQ(device->ledger().snapshot().peak, sealed.peak);
  }
}

TEST(Memory, NothingIsAllocatedAfterSeal) {
  for (int stage = 0; stage <= 3; ++stage) {
    plain::run(2, setup(stage, kTypes[1], 3), [&](plain::Trainer& trainer, Communicator&) {
      const MemoryLedger& ledger = trainer.engine().device().ledger();
      const std::int64_t sealed = ledger.allocations();
      for (int i = 0; i < 3; ++i) trainer.step();
      trainer.engine().begin_evaluation();
      trainer.forward();
      trainer.engine().end_evaluation();
      trainer.step();
      EXPECT_EQ(ledger.allocations(), sealed);
    });
  }
}

TEST(Memory, OfWindowsIsWhatTheLimitsAllow) {
  constexpr std::int64_t kElements = 4096;
  for (const int ahead : {0, 1, 3}) {
    plain::Setup plan = setup(3, kTypes[1]);
    plan.units = plain::equal_units(12, kElements);
    plan.engine.limits.prefetch_elements = ahead * kElements;
    // The unit in use, those ahead of it, and gradients: one written while others are reduced, two
    // if the limit has room for any.
    const int gradients = ahead == 0 ? 2 : 3;
    EXPECT_LE(planned(0, 4, plan).current_of(MemoryClass::gathered),
              (ahead + 1 + gradients) * kElements * 2);
    plan.engine.limits.live_elements = 2 * kElements;
    EXPECT_LE(planned(0, 4, plan).current_of(MemoryClass::gathered), 4 * kElements * 2);
  }
  plain::Setup plan = setup(3, kTypes[1]);
  plan.units = plain::equal_units(12, kElements);
  plan.engine.limits.prefetch_elements = 0;
  EXPECT_EQ(planned(0, 4, plan).current_of(MemoryClass::gathered), 3 * kElements * 2);
}

TEST(Memory, OfWindowsIsNoneWhereGradientsAreWrittenInPlace) {
  for (const int stage : {0, 1}) {
    EXPECT_EQ(planned(0, 4, setup(stage, kTypes[0])).peak_of(MemoryClass::gathered), 0);
    EXPECT_GT(planned(0, 4, setup(stage, kTypes[0], 2)).peak_of(MemoryClass::gathered), 0);
    EXPECT_EQ(planned(0, 4, setup(stage, kTypes[1], 2)).peak_of(MemoryClass::gathered), 0);
  }
}

TEST(Memory, OfReceiveSlicesIsAtMostEightMebibytes) {
  for (const int world : {2, 3, 8, 16, 64}) {
    for (const Types types : kTypes) {
      plain::Setup plan = setup(3, types);
      plan.units = plain::equal_units(2, 50'000'000);
      const MemorySnapshot snapshot = planned(world / 2, world, plan, BackendKind::mpi);
      const std::int64_t receive = snapshot.peak_of(MemoryClass::communication) - kStepSumBytes;
      EXPECT_LE(receive, 8 << 20);
      EXPECT_GT(receive, 7 << 20);  // and it is used
      plan.engine.limits.reduce_bucket_elements = 1 << 16;
      EXPECT_LE(planned(0, world, plan, BackendKind::mpi).peak_of(MemoryClass::communication) -
                    kStepSumBytes,
                (1 << 16) * size_of(types.compute));
    }
  }
}

TEST(Memory, OfSumsMadeOnTheirWayIsAShardUnlessABucketCuts) {
  constexpr std::int64_t kElements = 50'000'000;
  plain::Setup plan = setup(3, kTypes[1]);
  plan.units = plain::equal_units(2, kElements);
  const auto received = [&](int world) {
    return planned(0, world, plan, BackendKind::nccl_fast).peak_of(MemoryClass::communication) -
           kStepSumBytes;
  };
  for (const int world : {2, 8, 64}) {
    const FlatLayout layout(plan.units[0].parameters, world, 0, kAlignment);
    EXPECT_EQ(received(world), layout.shard() * 2);
  }
  plan.engine.limits.reduce_bucket_elements = 1 << 16;
  EXPECT_EQ(received(8), (1 << 13) * 2);
  // Between replicas fp32 sums travel, 8 MiB of them at a time.
  plan.engine.limits = plain::options(3).limits;
  plan.mesh = {.replicate = 2, .shard = 4, .tensor = 1};
  EXPECT_EQ(received(8), (1 << 21) * (2 + 4));
}

TEST(Memory, OfPaddingIsUnderOnePercentAboveTwoMillionParameters) {
  plain::Setup plan = setup(3, kTypes[1]);
  plan.units.clear();
  for (int i = 0; i < 11; ++i) {
    plan.units.push_back({fmt::format("block.{}", i),
                          {{"norm", {127}},
                           {"attention", {127, 381}},
                           {"bias", {381}},
                           {"up", {127, 509}},
                           {"down", {509, 127}}}});
  }
  for (int world = 1; world <= 16; ++world) {
    const auto communicator = planning::communicator(0, world, BackendKind::mpi);
    const auto device = planning::open();
    plain::Trainer trainer(*communicator, *device, plan);
    ASSERT_GT(trainer.engine().parameter_count(), 1'900'000);
    EXPECT_LT(trainer.engine().padding_count() * 100, trainer.engine().parameter_count()) << world;
  }
}

/// examples/zero_mlp.cpp: 12 layers of width 1024 in fp32, one rank, stage 0.
TEST(Memory, OfTwelveLayersOfWidth1024IsWhatIntroductionsCount) {
  const auto communicator = planning::communicator(0, 1, BackendKind::local);
  const auto device = planning::open();
  Engine engine(*communicator, *device, {.stage = 0});
  for (int l = 0; l < 12; ++l)
    engine.add_unit("layer." + std::to_string(l), {{"weight", {1024, 1024}}, {"bias", {1024}}});
  engine.seal();
  const MemorySnapshot memory = device->ledger().snapshot();
  constexpr std::int64_t kParameters = 12 * (1024 * 1024 + 1024) * 4;  // 48.05 MiB
  EXPECT_EQ(kParameters, memory.current_of(MemoryClass::parameters));
  EXPECT_EQ(kParameters, memory.current_of(MemoryClass::gradients));
  EXPECT_EQ(2 * kParameters, memory.current_of(MemoryClass::optimizer));  // 96.1 MiB
  EXPECT_EQ(0, memory.current_of(MemoryClass::gathered));
  EXPECT_EQ(4 * kParameters + memory.current_of(MemoryClass::communication), memory.total);
  constexpr std::int64_t kActivation = 32 * 1024 * 4;
  constexpr std::int64_t kBatch = 2 * kActivation;  // inputs and targets: 0.25 MiB
  constexpr std::int64_t kKept = 12 * kActivation;  // outputs of the layers: 1.50 MiB
  const auto mib = [](std::int64_t bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
  };
  std::int64_t live = memory.current_of(MemoryClass::parameters) + kBatch;
  EXPECT_EQ("48.30", mib(live));
  EXPECT_EQ("49.80", mib(live += kKept)) << "forward";
  EXPECT_EQ("49.92", mib(live += kActivation)) << "the gradient of the loss";
  EXPECT_EQ("97.97", mib(live += memory.current_of(MemoryClass::gradients))) << "backward";
  EXPECT_EQ("194.06", mib(live += memory.current_of(MemoryClass::optimizer))) << "the first step";
}

}  // namespace
}  // namespace zero
