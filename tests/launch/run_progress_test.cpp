// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The lines about that which a run keeps, and about the room for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/run_checkpoints.h"
#include "tests/checkpoint/memory_files.h"

namespace zero {
namespace {

using ::testing::HasSubstr;

TEST(RunProgress, TellsWhatIsKept) {
  RunProgress progress;
  EXPECT_EQ(progress.kept(), "");
  progress.saves = true;
  EXPECT_EQ(progress.kept(), "; nothing is kept: there is no checkpoint yet");
  progress.steps_logged = 5;
  progress.saved(5, "runs/a/step_00000005");
  EXPECT_EQ(progress.kept(),
            "; the newest checkpoint, runs/a/step_00000005, holds every step done");
  progress.steps_logged = 7;
  EXPECT_EQ(progress.kept(),
            "; nothing of the steps since step 5 is kept; the newest checkpoint is "
            "runs/a/step_00000005");
}

TEST(RoomWarning, IsGivenWhereACheckpointHasNoRoom) {
  testing::MemoryFiles files;
  files.make_folder("/runs");
  files.set_free_bytes(5'000'000);
  EXPECT_EQ(room_warning(files, "/runs/a/ck", 5'000'000), "");
  EXPECT_THAT(room_warning(files, "/runs/a/ck", 7'500'000),
              HasSubstr("run.checkpoint.folder: /runs/a/ck has room for 5.0 MB, and a checkpoint "
                        "takes 7.5 MB: free space there before the first save"));
}

}  // namespace
}  // namespace zero
