// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// An element's bits do not depend on where it lies or who computes it.
#include <rapidcheck.h>

#include "tests/optim/case.h"

namespace zero::testing {
namespace {

using Kind = OptimizerConfig::Kind;

UpdateArguments with_numbers(UpdateArguments a) {
  a.learning_rate = 1e-3;
  a.weight_decay = 0.1;
  a.gradient_scale = 0.5F;
  a.step = 2;
  return a;
}

const std::vector<OptimizerConfig> kConfigs = {
    {.kind = Kind::adamw}, {.kind = Kind::adam}, {.kind = Kind::sgd, .momentum = 0.9}};

TEST(Cuts, AnyCutGivesTheBitsOfOneUpdate) {
  const auto device = cpu::open();
  constexpr std::int64_t kCount = 1000;
  for (const OptimizerConfig& config : kConfigs) {
    const auto optimizer = make_optimizer(config, *device);
    const State start = some_state(kCount, {.gradient = DType::bf16, .compute = DType::bf16}, 1);
    State whole = start;
    optimizer->update(device->compute(), with_numbers(whole.arguments(0, kCount)));
    EXPECT_TRUE(rc::check([&] {
      State cut = start;
      for (std::int64_t begin = 0; begin < kCount;) {
        const auto count = *rc::gen::inRange<std::int64_t>(1, kCount - begin + 1);
        optimizer->update(device->compute(), with_numbers(cut.arguments(begin, count)));
        begin += count;
      }
      RC_ASSERT(cut == whole);
    }));
  }
}

TEST(Cuts, NeighboursOfARangeStayUntouched) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer({}, *device);
  const State start = some_state(100, {.gradient = DType::fp16, .compute = DType::fp16}, 2);
  for (std::int64_t begin = 0; begin < 20; ++begin) {
    for (std::int64_t count = 0; count < 40; ++count) {
      State state = start;
      optimizer->update(device->compute(), with_numbers(state.arguments(begin, count)));
      for (std::int64_t i = 0; i < 100; ++i) {
        if (i >= begin && i < begin + count) continue;
        ASSERT_EQ(state.master.get(i), start.master.get(i));
        ASSERT_EQ(state.moment0.get(i), start.moment0.get(i));
        ASSERT_EQ(state.moment1.get(i), start.moment1.get(i));
        ASSERT_EQ(state.compute.get(i), start.compute.get(i));
      }
    }
  }
}

TEST(Cuts, AnyAlignmentGivesTheSameBits) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer({}, *device);
  constexpr std::int64_t kCount = 77;
  const State start = some_state(kCount, {.gradient = DType::bf16, .compute = DType::bf16}, 3);
  State expected = start;
  optimizer->update(device->compute(), with_numbers(expected.arguments(0, kCount)));
  for (std::int64_t shift = 1; shift < 32; ++shift) {
    State moved = some_state(kCount + shift, {.gradient = DType::bf16, .compute = DType::bf16}, 4);
    for (std::int64_t i = 0; i < kCount; ++i) {
      moved.master.set(i + shift, start.master.get(i));
      moved.moment0.set(i + shift, start.moment0.get(i));
      moved.moment1.set(i + shift, start.moment1.get(i));
      moved.gradient.set(i + shift, start.gradient.get(i));
    }
    optimizer->update(device->compute(), with_numbers(moved.arguments(shift, kCount)));
    for (std::int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(moved.master.get(i + shift), expected.master.get(i));
      ASSERT_EQ(moved.moment0.get(i + shift), expected.moment0.get(i));
      ASSERT_EQ(moved.moment1.get(i + shift), expected.moment1.get(i));
      ASSERT_EQ(moved.compute.get(i + shift), expected.compute.get(i));
    }
  }
}

TEST(Cuts, AnyThreadCountGivesTheSameBits) {
  constexpr std::int64_t kCount = 100'003;  // several grains, and a tail
  for (const OptimizerConfig& config : kConfigs) {
    const State start = some_state(kCount, {.gradient = DType::bf16, .compute = DType::bf16}, 5);
    State expected = start;
    const auto one = cpu::open({.threads = 1});
    make_optimizer(config, *one)
        ->update(one->compute(), with_numbers(expected.arguments(0, kCount)));
    for (const int threads : {2, 3, 8}) {
      State state = start;
      const auto device = cpu::open({.threads = threads});
      make_optimizer(config, *device)
          ->update(device->compute(), with_numbers(state.arguments(0, kCount)));
      EXPECT_EQ(state, expected) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace zero::testing
