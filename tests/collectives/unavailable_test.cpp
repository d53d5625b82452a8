// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Built with collectives/mpi/unavailable.cpp in place of the MPI backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/mpi/own.h"
#include "tests/collectives/messages.h"

namespace zero::test {
namespace {

TEST(WithoutMpi, WorldSaysWhatToInstall) {
  EXPECT_FALSE(mpi::available());
  EXPECT_THAT(mpi::version(), ::testing::HasSubstr("none in this build; it needs libopenmpi-dev"));
  EXPECT_EQ(message_of([] { static_cast<void>(mpi::world(nullptr, nullptr)); }),
            "this build has no MPI backend; install libopenmpi-dev and openmpi-bin, then configure "
            "again with -DZERO_MPI=ON");
}

TEST(WithoutMpi, ThereIsNothingToCompareWith) {
  EXPECT_EQ(message_of([] { mpi::own_collective(Operation::barrier, {}, {}); }),
            "this build has no MPI whose collectives could run");
}

TEST(WithoutMpi, AbortEndsTheProcess) {
  EXPECT_EXIT(mpi::abort(3), ::testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace zero::test
