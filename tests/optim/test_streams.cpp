// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/optim/case.h"
#include "tests/support/test_device.h"

namespace zero::testing {
namespace {

TEST(UpdateOnAStream, ALazyStreamRunsItWhenItIsWaitedFor) {
  const auto lazy = open({.policy = StreamOrder::Policy::lazy});
  const auto optimizer = make_optimizer({}, *lazy);
  State state = some_state(100, {.gradient = DType::bf16, .compute = DType::bf16}, 1);
  State expected = state;
  const State before = state;
  const auto with_rate = [](UpdateArguments a) {
    a.learning_rate = 1e-3;
    return a;
  };
  const auto device = cpu::open();
  make_optimizer({}, *device)->update(device->compute(), with_rate(expected.arguments(0, 100)));

  optimizer->update(lazy->compute(), with_rate(state.arguments(0, 100)));
  EXPECT_EQ(state, before);
  lazy->compute().synchronize();
  EXPECT_EQ(state, expected);
}

TEST(UpdateOnAStream, ThePlanningDeviceTouchesNothing) {
  const auto device = planning::open();
  const auto optimizer = make_optimizer({}, *device);
  const Buffer master = device->allocate(64, DType::fp32, MemoryClass::optimizer, "master");
  const Buffer moments = device->allocate(128, DType::fp32, MemoryClass::optimizer, "moments");
  const Buffer gradient = device->allocate(64, DType::bf16, MemoryClass::gradients, "gradient");
  const Buffer compute = device->allocate(64, DType::bf16, MemoryClass::parameters, "compute");
  EXPECT_NO_THROW(optimizer->update(device->compute(),
                                    {.master = master.view(),
                                     .moments = {moments.slice(0, 64), moments.slice(64, 64)},
                                     .gradient = gradient.view(),
                                     .compute = compute.view(),
                                     .learning_rate = 1e-3}));
  device->compute().synchronize();
}

TEST(UpdateOnAStream, AnEmptyShardIsNoWork) {
  const auto device = cpu::open();
  const auto optimizer = make_optimizer({}, *device);
  EXPECT_NO_THROW(optimizer->update(device->compute(), {}));
}

}  // namespace
}  // namespace zero::testing
