// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <thread>

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
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
}

TEST(Process, ThreadsThatShareOneCoreAreWarnedOf) {
  EXPECT_EQ(binding_warning(0, 1), "");
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "there is one core";
  std::thread([] {
    cpu_set_t whole;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(whole), &whole), 0);
    int core = 0;
    while (!CPU_ISSET(core, &whole)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_THAT(
        binding_warning(3, 2),
        HasSubstr("[rank 3] run.threads is 2, but mpirun has bound this rank to 1 core(s)"));
  }).join();
}

TEST(Process, VersionsAreNamed) {
  EXPECT_THAT(version_text(), ::testing::AllOf(HasSubstr("zero "), HasSubstr("oneDNN "),
                                               HasSubstr("vector instructions: ")));
}

}  // namespace
}  // namespace zero
