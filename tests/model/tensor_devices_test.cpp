// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/backends.h"
#include "collectives/communicator.h"
#include "model/tensor_parallel.h"
#include "tests/errors.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TensorParallel, OneOfAnotherDeviceIsRefused) {
  local::run(2, [](Communicator& group) {
    const auto device = cpu::open({.threads = 1});
    const auto other = cpu::open({.threads = 1});
    const TensorParallel tensor(group, *device, 2, {});
    EXPECT_THAT(error_of([&] { TensorParallel(group, *other, 2, {}); }),
                AllOf(HasSubstr(fmt::format("[rank {}] TensorParallel: the communicator serves "
                                            "another device (\"cpu\")",
                                            group.rank())),
                      HasSubstr("give both the same device")));
    const auto holders = group.split(0, group.rank());
    const DeviceClaim claim(*holders, *other, "test");
    TensorParallel own(group, *device, 2, {});
    EXPECT_THAT(error_of([&] { own.prepare(*holders, 4, DType::fp32); }),
                HasSubstr("TensorParallel: the communicator serves another device"));
  });
}

}  // namespace
}  // namespace zero::testing
