// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The lines about that which a run keeps.
#include "launch/train/run_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/step_report.h"
#include "launch/train/train_process.h"

namespace zero {
namespace {

TEST(RunProgress, TellsWhatIsKept) {
  RunProgress progress;
  EXPECT_EQ(progress.kept(), "");
  progress.steps_done = 1;
  EXPECT_EQ(progress.kept(), "; nothing was saved (run.checkpoint.folder is not set)");
  progress.steps_done = 0;
  progress.saves = true;
  EXPECT_EQ(progress.kept(), "; the checkpoints of earlier starts, if any, are as they were");
  progress.searched = true;
  EXPECT_EQ(progress.kept(), "; nothing is kept: there is no checkpoint yet");
  progress.steps_done = 5;
  progress.saved(5, "runs/a/step_00000005");
  EXPECT_EQ(progress.kept(),
            "; the newest checkpoint, runs/a/step_00000005, holds every step done");
  progress.steps_done = 7;
  EXPECT_EQ(progress.kept(),
            "; nothing of the steps since step 5 is kept; the newest checkpoint is "
            "runs/a/step_00000005");
}

TEST(RunProgress, TellsTheNextStepAfterAFault) {
  RunProgress progress;
  EXPECT_EQ(progress.next_step(),
            "no checkpoint (run.checkpoint.folder is not set): started again, the run begins anew");
  progress.flights_in("run.log.flight");
  progress.saves = true;
  EXPECT_EQ(progress.next_step(),
            "started again, the run goes on from its newest checkpoint, if there is one; more: "
            "zero_doctor run.log.flight");
  progress.searched = true;
  progress.flights_in("");
  EXPECT_EQ(progress.next_step(), "no checkpoint yet: started again, the run begins anew");
  progress.saved(20, "runs/a/step_00000020");
  progress.flights_in("runs/a/flight");
  progress.steps_done = 25;
  EXPECT_EQ(progress.next_step(),
            "newest checkpoint: step 20; started again, the run goes on there; more: zero_doctor "
            "runs/a/flight");
}

// Which checkpoint there is, if any, is the run's to know, and not the engine's.
TEST(RunProgress, TellsTheNextStepBehindValuesThatADiskHasLost) {
  RunProgress progress;
  progress.steps_done = 5;
  const std::string why =
      "[rank 1] /nvme/(no name): cannot write 4096 bytes at offset 0: No space "
      "left on device; free space there; values in it are lost";
  EXPECT_EQ(told_of(ValuesLost(why), progress),
            "zero_train: " + why +
                "\nno checkpoint (run.checkpoint.folder is not set): started again, the run begins "
                "anew\n");
  progress.saves = true;
  progress.saved(4, "runs/a/step_00000004");
  EXPECT_THAT(told_of(ValuesLost(why), progress),
              ::testing::EndsWith(
                  " are lost\nnewest checkpoint: step 4; started again, the run goes on there\n"));
  EXPECT_EQ(told_of(AgreedError("not finite"), progress), "zero_train: not finite\n");
}

}  // namespace
}  // namespace zero
