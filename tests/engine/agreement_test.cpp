// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/plain.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// What a rank brings to seal().
struct Bring {
  EngineOptions options = plain::options(3);
  std::vector<plain::UnitSpec> units = plain::odd_units();
  bool reversed = false;  ///< declares an order in which units are used backwards
  int accumulation_steps = 1;
  int threads = 1;
  std::string products = "tiles";  ///< what its model computes by
};

constexpr int kRanks = 4;
constexpr int kStray = 2;

/// What each rank's seal() says when rank 2 brings something changed.
std::vector<std::string> sealed(const std::function<void(Bring&)>& change) {
  std::vector<std::string> messages(kRanks);
  local::run(kRanks, [&](Communicator& communicator) {
    Bring bring;
    if (communicator.rank() == kStray) change(bring);
    const std::unique_ptr<Device> device = cpu::open({.threads = bring.threads});
    Engine engine(communicator, *device, bring.options);
    engine.require_same("layers' kernels", bring.products);
    std::vector<Use> order;
    for (const plain::UnitSpec& unit : bring.units)
      order.push_back({engine.add_unit(unit.name, unit.parameters), Phase::both});
    if (bring.reversed) std::reverse(order.begin(), order.end());
    messages[static_cast<std::size_t>(communicator.rank())] = error_of(
        [&] { engine.seal({.order = order, .accumulation_steps = bring.accumulation_steps}); });
  });
  return messages;
}

void expect_stray(const std::function<void(Bring&)>& change, const std::string& theirs,
                  const std::string& first) {
  const std::vector<std::string> messages = sealed(change);
  EXPECT_THAT(messages, Each(AllOf(HasSubstr("seal: rank 2 has \"" + theirs),
                                   HasSubstr("rank 0 has \"" + first),
                                   HasSubstr("all ranks must be started alike"))));
  EXPECT_THAT(messages, Each(messages.front()));  // one report speaks for all
}

TEST(Agreement, OfEqualRanksIsSilent) {
  EXPECT_THAT(sealed([](Bring&) {}), Each(std::string("no error")));
}

TEST(Agreement, NamesTheRankAndTheOptionThatDiffers) {
  expect_stray([](Bring& b) { b.options.stage = 1; }, "stage: 1\"", "stage: 3\"");
  expect_stray([](Bring& b) { b.options.seed = 9; }, "seed: 9\"", "seed: 3\"");
  expect_stray([](Bring& b) { b.options.compute = DType::bf16; }, "compute dtype: bf16\"",
               "compute dtype: fp32\"");
  expect_stray([](Bring& b) { b.options.gradient_clipping = 0.5; }, "gradient_clipping: 0.5\"",
               "gradient_clipping: 0\"");
  expect_stray([](Bring& b) { b.accumulation_steps = 2; }, "accumulation_steps: 2\"",
               "accumulation_steps: 1\"");
  expect_stray([](Bring& b) { b.options.overlap = false; }, "overlap: false\"", "overlap: true\"");
}

TEST(Agreement, NamesTheKernelsThatDiffer) {
  expect_stray([](Bring& b) { b.products = "pairs"; }, "layers' kernels: pairs\"",
               "layers' kernels: tiles\"");
  plain::run(1, {plain::options(3)}, [](plain::Trainer& trainer, Communicator&) {
    EXPECT_EQ(error_of([&] { trainer.engine().require_same("kernels of", "mine"); }),
              "require_same(kernels of): the engine is sealed; say it before seal()");
  });
}

TEST(Agreement, NamesTheGradientTypeAndTheReductionThatDiffer) {
  const auto alone = [](const std::function<void(EngineOptions&)>& change) {
    return sealed([&](Bring& b) {
      b.options.stage = 3;
      change(b.options);
    });
  };
  EXPECT_THAT(alone([](EngineOptions& o) {
                o.compute = DType::bf16;
                o.gradient = DType::fp32;
              }),
              Each(HasSubstr("compute dtype: bf16")));
  EXPECT_THAT(alone([](EngineOptions& o) {
                o.stage = 0;
                o.reduction = ReductionPolicy::boundary;
              }),
              Each(HasSubstr("stage: 0")));  // the first difference is told
}

TEST(Agreement, NamesTheOptimizerThatDiffers) {
  expect_stray([](Bring& b) { b.options.optimizer.kind = OptimizerConfig::Kind::adam; },
               "optimizer: Adam ", "optimizer: AdamW ");
  expect_stray([](Bring& b) { b.options.optimizer.beta2 = 0.5; },
               "optimizer: AdamW beta1=0.9 beta2=0.5 ", "optimizer: AdamW beta1=0.9 beta2=0.999 ");
  expect_stray(
      [](Bring& b) {
        b.options.groups = {{"*.bias", 0.5, 0.0}};
      },
      "parameter group: *.bias scale=0.5 weight_decay=0\"", "limits: ");
}

TEST(Agreement, NamesTheLimitsThatDiffer) {
  expect_stray([](Bring& b) { b.options.limits.prefetch_elements = 5; }, "limits: prefetch=5 ",
               "limits: prefetch=auto ");
  expect_stray([](Bring& b) { b.options.limits.reduce_bucket_elements = 77; },
               "limits: prefetch=auto live=auto persistence=0 reuse=0 reduce_bucket=77\"",
               "limits: ");
}

TEST(Agreement, NamesTheUnitOrShapeThatDiffers) {
  expect_stray(
      [](Bring& b) {
        b.units[1].parameters[0].shape = {29, 14};
      },
      "unit first parameter 0: first.weight [29, 14]",
      "unit first parameter 0: first.weight [29, 13]");
  expect_stray([](Bring& b) { b.units[1].name = "other"; }, "unit other parameter 0: other.weight",
               "unit first parameter 0: first.weight");
  expect_stray([](Bring& b) { b.units[2].parameters[1].trainable = false; },
               "unit second parameter 1: second.bias [11] init=0(0,0) frozen\"",
               "unit second parameter 1: second.bias [11] init=0(0,0) trainable\"");
  expect_stray([](Bring& b) { b.units[0].parameters[0].init = init::normal(0.5F); },
               "unit embedding parameter 0: embedding.tokens [31, 17] init=2(0,0.5)",
               "unit embedding parameter 0: embedding.tokens [31, 17] init=2(0,0.02)");
  expect_stray([](Bring& b) { b.units.pop_back(); },
               "use 0 of the order: ", "unit head parameter 0: ");
}

TEST(Agreement, NamesTheThreadCountThatDiffers) {
  expect_stray([](Bring& bring) { bring.threads = 2; }, "threads: 2", "threads: 1");
}

TEST(Agreement, NamesTheFirstUseThatDiffers) {
  expect_stray([](Bring& b) { b.reversed = true; }, "use 0 of the order: forward+backward(head)\"",
               "use 0 of the order: forward+backward(embedding)\"");
}

TEST(Agreement, SeesAUnitWithoutParameters) {
  const std::vector<std::string> messages = sealed([](Bring& b) {
    b.units.push_back({"empty", {}});
  });
  EXPECT_THAT(messages, Each(HasSubstr("rank 2 has \"")));
}

/// What each rank's seal() says on a mesh {replicate 1, shard 2, tensor 2}: ranks 0 and 2 have
/// tensor index 0. A unit of one matrix, whose slice `slice` gives.
std::vector<std::string> sealed_slices(
    const std::function<void(int rank, TensorSlice& slice)>& change) {
  std::vector<std::string> messages(kRanks);
  local::run(kRanks, [&](Communicator& communicator) {
    Mesh mesh(communicator, {1, 2, 2});
    const std::unique_ptr<Device> device = cpu::open();
    Engine engine(mesh, *device, plain::options(3));
    TensorSlice slice{{6, 10}, 1, {even_range(10, mesh.index(Axis::tensor), 2)}};
    change(communicator.rank(), slice);
    engine.add_unit("unit", {{.name = "weight", .shape = slice.local_shape(), .slice = slice}});
    messages[static_cast<std::size_t>(communicator.rank())] = error_of([&] { engine.seal(); });
  });
  return messages;
}

TEST(AgreementOnSlices, LetsRanksOfATensorGroupDiffer) {
  EXPECT_THAT(sealed_slices([](int, TensorSlice&) {}), Each(std::string("no error")));
  EXPECT_THAT(
      sealed_slices([](int rank, TensorSlice& slice) {
        slice.ranges[0] = rank % 2 == 0 ? TensorSlice::Range{0, 8, 0} : TensorSlice::Range{8, 2, 0};
      }),
      Each(std::string("no error")));
}

TEST(AgreementOnSlices, NamesTheRankOfOneTensorIndexThatDiffers) {
  EXPECT_THAT(sealed_slices([](int rank, TensorSlice& slice) {
                if (rank == 3) slice.ranges[0] = {4, 6, 0};
              }),
              Each(HasSubstr("seal: rank 3 has \"unit unit slice 0: [4, 10) copy 0\", rank 1 has "
                             "\"unit unit slice 0: [5, 10) copy 0\"; all ranks must be started")));
  EXPECT_THAT(sealed_slices([](int rank, TensorSlice& slice) {
                if (rank == 1) slice = {{6, 10}, 0, {{0, 6, 0}}};
              }),
              Each(HasSubstr("rank 1 has \"unit unit parameter 0: unit.weight [6, 10] init=0(0,0) "
                             "trainable sliced along 0\", rank 0 has ")));
}

TEST(AgreementOnSlices, NamesAnIndexThatHasNoFirstHolderOrTwo) {
  EXPECT_THAT(sealed_slices([](int rank, TensorSlice& slice) {
                if (rank % 2 == 1) slice.ranges[0] = {6, 4, 0};
              }),
              Each(HasSubstr("seal: index 5 along dimension 1 of parameter \"unit.weight\" [6, 10] "
                             "is copy 0 on 0 ranks of the tensor axis, expected 1")));
  EXPECT_THAT(sealed_slices([](int rank, TensorSlice& slice) {
                if (rank % 2 == 1) slice.ranges[0] = {4, 6, 0};
              }),
              Each(HasSubstr("index 4 along dimension 1 of parameter \"unit.weight\" [6, 10] is "
                             "copy 0 on 2 ranks")));
}

TEST(AgreementOnSlices, RefusesPartOfATensorWithoutATensorAxis) {
  local::run(1, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    Engine engine(communicator, *device, plain::options(3));
    EXPECT_THAT(
        error_of([&] {
          engine.add_unit(
              "unit",
              {{.name = "weight", .shape = {6, 5}, .slice = TensorSlice{{6, 10}, 1, {{0, 5, 0}}}}});
        }),
        HasSubstr("add_unit(unit): parameter \"unit.weight\" is a slice [6, 5] of [6, 10], "
                  "but the mesh has one rank on its tensor axis; expected all of it"));
  });
}

TEST(Agreement, OfALongerListSaysThatTheOtherHasNothingMore) {
  local::run(2, [](Communicator& communicator) {
    const std::unique_ptr<Device> device = cpu::open();
    EXPECT_THAT(error_of([&] {
                  require_agreement(communicator, *device, "start",
                                    communicator.rank() == 0 ? "a: 1\n" : "a: 1\nb: 2\n");
                }),
                HasSubstr("start: rank 1 has \"b: 2\", rank 0 has \"nothing more\""));
  });
}

}  // namespace
}  // namespace zero
