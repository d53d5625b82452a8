// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Built with unavailable.cpp of collectives/mpi and collectives/nccl in place of the backends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/backends.h"
#include "collectives/stores.h"
#include "tests/errors.h"

namespace zero::test {
namespace {

TEST(WithoutMpi, WorldSaysWhatToInstall) {
  EXPECT_FALSE(mpi::available());
  EXPECT_THAT(mpi::version(), ::testing::HasSubstr("none in this build; it needs libopenmpi-dev"));
  EXPECT_EQ(error_of([] { static_cast<void>(mpi::world(nullptr, nullptr)); }),
            "this build has no MPI backend; install libopenmpi-dev and openmpi-bin, then configure "
            "again with -DZERO_MPI=ON");
}

TEST(WithoutMpi, AbortEndsTheProcess) {
  EXPECT_EXIT(mpi::abort(3), ::testing::ExitedWithCode(3), "");
}

TEST(WithoutNccl, WorldSaysWhatToInstall) {
  EXPECT_FALSE(nccl::available());
  EXPECT_THAT(nccl::version(), ::testing::HasSubstr("it needs launch/install_cuda.sh"));
  InProcessStore store;
  const auto device = cpu::open();
  EXPECT_EQ(error_of([&] {
              static_cast<void>(nccl::world({store, 0, 1}, *device, {}));
            }),
            "this build has no NCCL backend; launch/install_cuda.sh brings CUDA and NCCL, then "
            "configure again with -DZERO_CUDA=ON");
}

}  // namespace
}  // namespace zero::test
