// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Saves that end otherwise than with a commit, and the work before one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/checkpointer.h"
#include "engine/engine.h"
#include "tests/checkpoint/checkpoint_run.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SaveEnd, AFileThatCannotBeSyncedStepsLaterIsNotCommitted) {
  constexpr int kSteps = 3;
  Scratch scratch;
  std::atomic<int> steps{0};
  HookedDisk late([&](const std::string& call, const std::string& path) {
    if (call != "sync") return;
    for (int i = 0; i < 300 && steps < kSteps; ++i)  // not for ever, if training waits for it
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    fail("{}: cannot sync: Input/output error", path);
  });
  SavedRun with = run_of(4, 3, scratch.path("run"));
  with.job.mesh.replicate = 2;  // rank 2 writes files too
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    CheckpointOptions options = with.checkpoints;
    if (communicator.rank() == 2) options.disk = &late;
    Checkpointer checkpointer(engine, options);
    checkpointer.save({});
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_FALSE(toy::step(engine, model, communicator, with.job, step).nonfinite);
      if (communicator.rank() == 0) ++steps;
    }
    checkpointer.wait();
    EXPECT_THAT(checkpointer.report()->error,
                AllOf(HasSubstr("[rank 2] "), HasSubstr("cannot sync: Input/output error")));
    EXPECT_FALSE(std::filesystem::exists(scratch.path("run/step_00000000")));
  });
}

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

TEST(SaveEnd, WhatTheCheckBeforeASaveThrowsIsWhyNothingIsSaved) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    CheckpointOptions options = with.checkpoints;
    const SaveRules rules{.check = [rank = communicator.rank()] {
      EXPECT_EQ(rank, 0);
      fail("the folder is gone");
    }};
    options.rules = &rules;
    Checkpointer checkpointer(engine, options);
    checkpointer.save({});
    checkpointer.wait();
    EXPECT_EQ(checkpointer.report()->error,
              scratch.path("run/step_00000000") + ": was not saved: [rank 0] the folder is gone");
    EXPECT_FALSE(std::filesystem::exists(scratch.path("run"))) << "it is not made again";
  });
}

TEST(SaveEnd, AFolderThatAnotherRunTakesOverDuringTheCommitIsNotCommitted) {
  Scratch scratch;
  const std::string owner = scratch.path("run/step_00000000.partial/OWNER");
  HookedDisk disk([&](const std::string& call, const std::string& path) {
    if (call == "create" && path.ends_with("/COMMIT")) write_bytes(owner, "another run");
  });
  SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
    CheckpointOptions options = with.checkpoints;
    if (communicator.rank() == 0) options.disk = &disk;
    Checkpointer checkpointer(engine, options);
    checkpointer.save({});
    checkpointer.wait();
    EXPECT_THAT(checkpointer.report()->error, HasSubstr(owner + ": is another process's"));
  });
  EXPECT_FALSE(std::filesystem::exists(scratch.path("run/step_00000000")));
  EXPECT_EQ(file_bytes(owner), "another run");
}

TEST(SaveEnd, ASaveThatIsGivenUpCommitsNothingAndSaysWhy) {
  Scratch scratch;
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator&) {
    Checkpointer checkpointer(engine, with.checkpoints);
    checkpointer.save({});
    checkpointer.give_up("step 1 was not finite");
    EXPECT_THAT(checkpointer.report()->error, HasSubstr("step 1 was not finite"));
    EXPECT_FALSE(checkpointer.report());
  });
  EXPECT_TRUE(contents(scratch.path("run")).empty());
}

TEST(SaveEnd, RanksHaveNoTimeoutWhileADiskDecidesHowASaveEndsInAStep) {
  Scratch scratch;
  const Communicator* first = nullptr;
  std::vector<std::int64_t> timeouts;  // of rank 0, in milliseconds, while it removes
  Faults faults("Input/output error");
  faults.fail_at("queue write", 0);
  HookedDisk failing([&](const std::string& call, const std::string& path) {
    if (call == "rename" && path.ends_with(".partial")) {
      timeouts.push_back(first->wait_limits()->timeout.count());
      EXPECT_EQ(first->wait_limits()->disk_phase, "save");
    }
    faults(call, path);
  });
  const SavedRun with = run_of(2, 3, scratch.path("run"));
  toy::with_engine(with.job, [&](Engine& engine, toy::Model& model, Communicator& communicator) {
    CheckpointOptions options = with.checkpoints;
    if (communicator.rank() == 0) {
      first = &communicator;
      options.disk = &failing;
    }
    Checkpointer checkpointer(engine, options);
    checkpointer.save({});
    const auto before = communicator.wait_limits();
    std::optional<SaveReport> report;
    for (int step = 0; !report; ++step) {
      toy::step(engine, model, communicator, with.job, step);
      report = checkpointer.report();
    }
    EXPECT_THAT(report->error, HasSubstr("Input/output error"));
    EXPECT_GT(before->timeout.count(), 0);
    EXPECT_EQ(communicator.wait_limits()->timeout, before->timeout);
    EXPECT_EQ(communicator.wait_limits()->disk_phase, "");
  });
  EXPECT_EQ(timeouts, std::vector<std::int64_t>{0});
}

TEST(SaveEnd, RanksThatFailWaitForNoExchangeThatAnotherNeverJoins) {
  for (const int failing : {0, 1}) {
    Scratch scratch;
    const SavedRun with = large_run_of(2, 3, scratch.path("run"));
    const std::string error = error_of([&] {
      toy::with_engine(with.job, [&](Engine& engine, toy::Model&, Communicator& communicator) {
        Checkpointer checkpointer(engine, with.checkpoints);
        checkpointer.save({});
        if (communicator.rank() == failing) fail("as on rank {}", failing);
        engine.states().finish_reads();  // submits the exchanges with that rank
        fail("behind the exchanges");
      });
    });
    EXPECT_THAT(error, HasSubstr(fmt::format("as on rank {}", failing)));
    EXPECT_FALSE(std::filesystem::exists(scratch.path("run/step_00000000")));
  }
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
