// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace zero {
namespace {

using ::testing::HasSubstr;

TEST(Process, RanksAreKnownBeforeMpiStarts) {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"})
    ::unsetenv(name);
  EXPECT_EQ(launched_rank().rank, 0);
  EXPECT_EQ(launched_rank().world, 1);
  ::setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
  EXPECT_EQ(launched_rank().rank, 2);
  EXPECT_EQ(launched_rank().world, 3);
  ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
  EXPECT_EQ(local_ranks(3), 2);
  EXPECT_EQ(local_ranks(6), 6) << "another world than the launcher's: planned on one host";
  ::unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST(Process, VersionsAreNamed) {
  EXPECT_THAT(version_text(), ::testing::AllOf(HasSubstr("zero "), HasSubstr("oneDNN "),
                                               HasSubstr("vector instructions: ")));
}

}  // namespace
}  // namespace zero
