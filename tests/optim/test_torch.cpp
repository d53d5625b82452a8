// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
//
// Ten steps against PyTorch's optimizers (figures recorded by make_torch_reference.py).
#include <algorithm>

#include "tests/optim/case.h"
#include "tests/optim/torch_reference.h"

namespace zero::testing {
namespace {

namespace ref = torch_reference;
using Kind = OptimizerConfig::Kind;
using Recorded = std::array<float, ref::kCount>;

float start(int i) { return static_cast<float>((i * 7919 + 12345) % 20011 - 10005) / 8192; }

float gradient(std::int64_t i, std::int64_t step) {
  return static_cast<float>((i * 104729 + step * 15485863 + 777) % 20011 - 10005) / 16384;
}

void expect_torch(const OptimizerConfig& config, const Recorded& recorded) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer(config, *device);
  State state = some_state(ref::kCount, {}, 0);
  for (int i = 0; i < ref::kCount; ++i) {
    state.master.set(i, start(i));
    state.moment0.set(i, 0);
    state.moment1.set(i, 0);
  }
  for (int step = 1; step <= ref::kSteps; ++step) {
    for (int i = 0; i < ref::kCount; ++i) state.gradient.set(i, gradient(i, step));
    UpdateArguments a = state.arguments(0, ref::kCount);
    a.learning_rate = ref::kLearningRate;
    a.weight_decay = config.weight_decay;
    a.step = step;
    optimizer->update(device->compute(), a);
  }
  for (int i = 0; i < ref::kCount; ++i) {
    const float expected = recorded.at(static_cast<std::size_t>(i));
    EXPECT_NEAR(state.master.get(i), expected, 3e-7F * std::max(1.0F, std::abs(expected)))
        << "element " << i;
  }
}

TEST(Torch, AdamWGivesItsParameters) {
  expect_torch({.kind = Kind::adamw, .beta2 = 0.95, .weight_decay = 0}, ref::adamw);
  expect_torch({.kind = Kind::adamw, .weight_decay = 0.1}, ref::adamw_decay);
}

TEST(Torch, AdamGivesItsParameters) {
  expect_torch({.kind = Kind::adam, .epsilon = 1e-6, .weight_decay = 0}, ref::adam);
  expect_torch({.kind = Kind::adam, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1},
               ref::adam_decay);
}

TEST(Torch, SgdGivesItsParameters) {
  expect_torch({.kind = Kind::sgd, .weight_decay = 0}, ref::sgd);
  expect_torch({.kind = Kind::sgd, .weight_decay = 0.1}, ref::sgd_decay);
}

TEST(Torch, SgdWithMomentumGivesItsParameters) {
  expect_torch({.kind = Kind::sgd, .weight_decay = 0, .momentum = 0.9}, ref::momentum);
  expect_torch({.kind = Kind::sgd, .weight_decay = 0.1, .momentum = 0.9}, ref::momentum_decay);
}

}  // namespace
}  // namespace zero::testing
