// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Every instruction set that was compiled and that this machine has gives the same bits.
#include <hwy/targets.h>

#include "device/cpu/primitives.h"
#include "tests/only_target.h"
#include "tests/optim/case.h"

namespace zero::testing {
namespace {

using Kind = OptimizerConfig::Kind;

TEST(Targets, GiveTheSameBits) {
  const auto device = cpu::open();
  const auto targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  constexpr std::int64_t kCount = 1003;
  for (const Kind kind : {Kind::adamw, Kind::adam, Kind::sgd}) {
    const auto optimizer = make_optimizer({.kind = kind, .momentum = 0.9}, *device);
    const State start = some_state(kCount, {.gradient = DType::bf16, .compute = DType::fp16}, 9);
    State first;
    for (const std::int64_t target : targets) {
      const OnlyTarget only(target);
      EXPECT_EQ(cpu::simd_target(), hwy::TargetName(target));
      State state = start;
      UpdateArguments a = state.arguments(0, kCount);
      a.learning_rate = 1e-3;
      a.weight_decay = 0.1;
      optimizer->update(device->compute(), a);
      if (target == targets.front()) first = state;
      EXPECT_EQ(state, first) << hwy::TargetName(target);
    }
  }
}

}  // namespace
}  // namespace zero::testing
