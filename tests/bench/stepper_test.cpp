// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/stepper.h"

#include <gtest/gtest.h>

#include "collectives/backends.h"

namespace zero::bench {
namespace {

TEST(Steppers, ATokensArithmeticIsSixPerParameterAndCausalAttention) {
  const TrainConfig config = make_config({});
  EXPECT_EQ(config.tokens_per_step(), 4 * 512);
  EXPECT_DOUBLE_EQ(flop_per_token(config), 6.0 * (124439808 + 12 * 768 * 512));
}

TEST(Steppers, OverridesAreTheTrainers) {
  const TrainConfig config = make_config(
      {.batch = 8, .dtype = DType::fp32, .stage = 3, .world = 4, .overrides = {"run.seed=5"}});
  EXPECT_EQ(config.engine.seed, 5U);
  EXPECT_EQ(config.engine.stage, 3);
  EXPECT_EQ(config.engine.compute, DType::fp32);
  EXPECT_EQ(config.batch, (Batch{8, 2, 1}));
}

TEST(Steppers, StepsAreTimedOnAllRanks) {
  const TrainConfig config = make_config(
      {.batch = 2,
       .sequence = 8,
       .dtype = DType::fp32,
       .stage = 2,
       .world = 2,
       .overrides = {"model.layers=1", "model.width=16", "model.heads=2", "model.vocabulary=64"}});
  local::run(2, [&](Communicator& communicator) {
    const auto device = cpu::open();
    Stepper stepper(config, communicator, *device);
    EXPECT_GT(stepper.seconds(2), 0);
    EXPECT_EQ(stepper.engine().steps_done(), 2);
  });
}

}  // namespace
}  // namespace zero::bench
