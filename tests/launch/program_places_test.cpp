// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Ranks to whom the same name is another place.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/launch/program.h"

namespace zero {
namespace {

using ::testing::HasSubstr;
using namespace testing;

TEST(Program, ACheckpointThatOneRankDoesNotSeeIsNamed) {
  const TinyRun run;
  std::string script;
  for (const int rank : {1, 0}) {
    const std::string here = run.folder().path("host" + std::to_string(rank));
    std::filesystem::create_directories(here + (rank == 0 ? "/old" : ""));
    script += fmt::format(
        "cd {1}; RANK={0} LOCAL_RANK={0} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT={2} {3} --config {4} --set run.resume=old{5}\n",
        rank, here, 29500 + ::getpid() % 400, kTrain, run.config(), rank == 0 ? "" : " &");
  }
  run.folder().write("job.sh", script + "status=$?; wait; exit $status");
  const Outcome outcome = shell(run, "bash " + run.folder().path("job.sh"));
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.errors, HasSubstr("[rank 1] run.resume: old is no folder"));
}

}  // namespace
}  // namespace zero
