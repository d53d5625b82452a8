// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Saves that end otherwise than with a commit, and the work before one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "checkpoint_run.h"
#include "scratch.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

TEST(SaveEnd, WorkBeforeTheCommitIsDoneByTheFirstRankAndItsFailureIsANote) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    Checkpointer checkpointer(engine, with.checkpoints);
    checkpointer.save({}, [&, rank = communicator.rank()] {
      EXPECT_EQ(rank, 0);
      EXPECT_TRUE(std::filesystem::exists(scratch.path("run/step_00000000.partial")));
      fail("the log is on a full disk");
    });
    checkpointer.wait();
    const auto report = checkpointer.report();
    EXPECT_EQ(report->error, "");
    EXPECT_EQ(report->notes, "the log is on a full disk");
  });
}

TEST(SaveEnd, AnExceptionThatUnwindsDropsTheSaveAndWaitsForNobody) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    EXPECT_EQ(error_of([&] {
                Checkpointer checkpointer(engine, with.checkpoints);
                checkpointer.save({});
                fail("as on one rank");
              }),
              "as on one rank");
    toy::step(engine, model, communicator, with.job, 0);  // the engine reads for nobody
    EXPECT_FALSE(std::filesystem::exists(scratch.path("run/step_00000000")));
    Checkpointer checkpointer(engine, with.checkpoints);
    checkpointer.save({});
    checkpointer.wait();
    EXPECT_EQ(checkpointer.report()->error, "");
  });
}

}  // namespace
}  // namespace zero::testing
