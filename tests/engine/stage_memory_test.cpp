// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "collectives/backends.h"
#include "device/device.h"
#include "engine/engine.h"

namespace zero {
namespace {

/// A decoder's units: an embedding, blocks between, a norm, and a head: the embedding again or a
/// unit of its own.
struct Shape {
  std::vector<ParameterSpec> embedding;
  std::vector<std::vector<ParameterSpec>> blocks;
  bool tied = true;
};

/// GPT-2's units: matrices, of which three of a block are large, and small parameters.
Shape gpt2(int blocks, std::int64_t width, std::int64_t context, std::int64_t vocabulary) {
  Shape shape{{{"wte", {vocabulary, width}}, {"wpe", {context, width}}}, {}, true};
  const std::vector<ParameterSpec> block{{"ln_1.weight", {width}},
                                         {"ln_1.bias", {width}},
                                         {"qkv.weight", {width, 3 * width}},
                                         {"qkv.bias", {3 * width}},
                                         {"proj.weight", {width, width}},
                                         {"proj.bias", {width}},
                                         {"ln_2.weight", {width}},
                                         {"ln_2.bias", {width}},
                                         {"up.weight", {width, 4 * width}},
                                         {"up.bias", {4 * width}},
                                         {"down.weight", {4 * width, width}},
                                         {"down.bias", {width}}};
  shape.blocks.assign(static_cast<std::size_t>(blocks), block);
  return shape;
}

struct Planned {
  MemorySnapshot memory;
  Schedule schedule;

  std::int64_t of(MemoryClass c) const { return memory.peak_of(c); }
  std::int64_t sum() const {
    std::int64_t bytes = 0;
    for (const MemoryClass c : all_memory_classes()) bytes += of(c);
    return bytes;
  }
};

/// What rank 0 of `world` takes in bf16.
Planned planned(const Shape& shape, int stage, int world, const ScheduleLimits& limits = {}) {
  const auto communicator = planning::communicator(0, world, BackendKind::local);
  const auto device = planning::open(1);
  Engine engine(*communicator, *device, {.stage = stage, .compute = DType::bf16, .limits = limits});
  const UnitId embedding = engine.add_unit("embedding", shape.embedding);
  std::vector<Use> order{{embedding, Phase::forward}};
  std::vector<UnitId> blocks;
  for (const std::vector<ParameterSpec>& block : shape.blocks) {
    blocks.push_back(engine.add_unit(fmt::format("h.{}", blocks.size()), block));
    order.push_back({blocks.back(), Phase::forward});
  }
  const UnitId norm = engine.add_unit("ln_f", {{"weight", {512}}});
  const UnitId head = shape.tied ? embedding : engine.add_unit("head", shape.embedding);
  order.push_back({norm, Phase::forward});
  order.push_back({head, Phase::both});
  order.push_back({norm, Phase::backward});
  for (std::size_t i = blocks.size(); i-- > 0;) order.push_back({blocks[i], Phase::backward});
  order.push_back({embedding, Phase::backward, false});
  engine.seal({.order = order});
  return {device->ledger().snapshot(), engine.schedule()};
}

/// The classes other than parameters and windows are the same at stages 2 and 3, which shard the
/// same gradients and states.
void expect_the_rest_alike(const Planned& two, const Planned& three) {
  for (const MemoryClass c : all_memory_classes()) {
    if (c == MemoryClass::parameters || c == MemoryClass::gathered) continue;
    EXPECT_EQ(three.of(c), two.of(c)) << name_of(c);
  }
}

TEST(StageMemory, OfTheQuickstartsShapeOnEightRanksIsLessAtStageThree) {
  const Shape shape = gpt2(4, 192, 256, 256);
  const Planned two = planned(shape, 2, 8);
  const Planned three = planned(shape, 3, 8);
  // Large: qkv, up and down, 11 x 192 x 192 elements of a block; windows of three blocks.
  EXPECT_EQ(three.schedule.gradients_begin, 3 * 11 * 192 * 192 * 2);
  EXPECT_LT(three.sum(), two.sum());
  expect_the_rest_alike(two, three);
}

TEST(StageMemory, OfEightBlocksOf384OnEightRanksIsLessAtStageThree) {
  const Shape shape = gpt2(8, 384, 256, 256);
  const Planned two = planned(shape, 2, 8);
  const Planned three = planned(shape, 3, 8);
  EXPECT_EQ(three.schedule.gradients_begin, 3 * 12 * 384 * 384 * 2);
  EXPECT_LT(three.sum(), two.sum());
  expect_the_rest_alike(two, three);
}

TEST(StageMemory, OfOneRankIsTheSameAtStagesTwoAndThree) {
  const Shape shape = gpt2(4, 384, 256, 50257);
  EXPECT_EQ(planned(shape, 3, 1).sum(), planned(shape, 2, 1).sum());
  EXPECT_EQ(planned(shape, 3, 1).schedule.gathers, 0);
}

TEST(StageMemory, LimitsThatAreGivenDecideAlone) {
  const Shape shape = gpt2(4, 384, 256, 256);
  EXPECT_EQ(planned(shape, 3, 1).schedule.gathers, 0);
  EXPECT_GT(planned(shape, 3, 1, {.prefetch_elements = 0}).schedule.gathers, 0);
  const Planned given = planned(shape, 3, 1, {.persistence_threshold = 100'000});
  EXPECT_GT(given.schedule.gathers, 0);
  EXPECT_EQ(planned(shape, 3, 8, {.persistence_threshold = 100'000}).sum(),
            planned(shape, 3, 8).sum());  // no unit is cheaper whole here
}

TEST(StageMemory, APrefetchLimitThatIsGivenIsUsedFully) {
  const Shape shape = gpt2(8, 384, 256, 256);
  constexpr std::int64_t kBlock = 12 * 384 * 384;  // its large parameters
  for (const std::int64_t ahead : {0, 1, 4}) {
    const Planned plan = planned(shape, 3, 64, {.prefetch_elements = ahead * kBlock});
    EXPECT_EQ(plan.schedule.begin.size(), static_cast<std::size_t>(ahead));
    EXPECT_EQ(plan.schedule.peak_live_elements, (ahead + 1) * kBlock);
  }
  const Planned all = planned(shape, 3, 64, {.prefetch_elements = 50'000'000});
  EXPECT_EQ(all.schedule.begin.size(), 8U);  // the model, one window a unit
}

/// Whether some unit has two windows at once.
bool twice_at_once(const Schedule& schedule) {
  for (const Window& a : schedule.windows) {
    for (const Window& b : schedule.windows) {
      if (&a != &b && a.unit == b.unit && a.kind == b.kind && a.issue <= b.last &&
          b.issue <= a.last)
        return true;
    }
  }
  return false;
}

Shape drawn_shape() {
  const auto size = [](std::int64_t most) {
    return 64 * *rc::gen::inRange<std::int64_t>(1, most / 64);
  };
  Shape shape;
  shape.tied = *rc::gen::arbitrary<bool>();
  shape.embedding = {{"weight", {size(*rc::gen::element(200'000, 4'000'000, 60'000'000))}}};
  const bool equal = *rc::gen::inRange(0, 4) > 0;
  const int blocks = *rc::gen::inRange(4, 33);
  for (int i = 0; i < blocks; ++i) {
    if (i > 0 && equal) {
      shape.blocks.push_back(shape.blocks.front());
    } else {
      shape.blocks.push_back({{"matrix", {size(4'000'000)}}, {"bias", {size(100'000)}}});
    }
  }
  return shape;
}

TEST(StageMemory, IsNeverMoreAtStageThreeThanAtStageTwo) {
  // rapidcheck prints the seed of the shapes that it draws.
  EXPECT_TRUE(rc::check([] {
    const Shape shape = drawn_shape();
    const int world = *rc::gen::element(1, 2, 3, 4, 8, 13, 64);
    const Planned two = planned(shape, 2, world);
    const Planned three = planned(shape, 3, world);
    RC_ASSERT(three.sum() <= two.sum());
    expect_the_rest_alike(two, three);
    RC_ASSERT(!twice_at_once(three.schedule));
    for (const Window& window : three.schedule.windows) {
      if (window.kind == Window::Kind::parameters && window.issue >= 0)
        RC_ASSERT(window.first - window.issue >= 2);
    }
  }));
}

TEST(StageMemory, AUnitHasOneWindowAtATimeWhateverTheLimits) {
  EXPECT_TRUE(rc::check([] {
    const Shape shape = drawn_shape();
    const ScheduleLimits limits{
        .prefetch_elements = *rc::gen::inRange<std::int64_t>(0, 100'000'000),
        .persistence_threshold = 0};
    const Planned plan = planned(shape, 3, *rc::gen::element(2, 8), limits);
    RC_ASSERT(!twice_at_once(plan.schedule));
    RC_ASSERT(plan.schedule.peak_live_elements <=
              *limits.prefetch_elements + 60'000'000 + 4'100'000);
  }));
}

}  // namespace
}  // namespace zero
