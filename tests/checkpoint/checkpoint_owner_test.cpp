// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Two processes that save one step in one folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/errors.h"
#include "weights/checkpoint_reader.h"
#include "weights/text_file.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointOwner : public ::testing::Test {
 protected:
  CheckpointLayout layout_ = small_layout();
  MemoryFiles files_;
};

TEST_F(CheckpointOwner, IsCommittedByItsOwnerAlone) {
  begin_checkpoint(files_, "runs", 7, layout_, "one");
  EXPECT_EQ(owner_of(files_, "runs", 7), "one");
  const CheckpointIndex first = write_checkpoint(files_, "runs", 7, layout_, 1);
  begin_checkpoint(files_, "runs", 7, layout_, "two");
  EXPECT_THAT(error_of([&] { commit_checkpoint(files_, "runs", first, "one"); }),
              HasSubstr("runs/step_00000007.partial/OWNER: is another process's: another process "
                        "saves this step in the same folder"));
  EXPECT_THAT(abandon_checkpoint(files_, "runs", 7, layout_, "one"),
              ElementsAre(HasSubstr("is another process's")));
  const CheckpointIndex second = write_checkpoint(files_, "runs", 7, layout_, 2);
  EXPECT_THAT(commit_checkpoint(files_, "runs", second, "two"), IsEmpty());
  EXPECT_THAT(error_of([&] { commit_checkpoint(files_, "runs", first, "one"); }),
              HasSubstr("OWNER: is gone: another process"));
  EXPECT_EQ(owner_of(files_, "runs", 7), std::nullopt);
  EXPECT_THAT(files_.list("runs/step_00000007"),
              ElementsAre("COMMIT", "index.json", "moments", "weights"));
  EXPECT_EQ(CheckpointReader(files_, "runs/step_00000007").index().extra["seed"], 2);
}

// As a full disk leaves it.
TEST_F(CheckpointOwner, AnOwnerThatWasCutOffIsItsOwn) {
  for (const std::string found : {"", "fe"}) {
    begin_checkpoint(files_, "runs", 7, layout_, "fe12");
    write_text(files_, owner_path("runs", 7), found);
    EXPECT_THAT(abandon_checkpoint(files_, "runs", 7, layout_, "fe12"), IsEmpty()) << found;
    EXPECT_THAT(files_.list("runs"), IsEmpty());
  }
  begin_checkpoint(files_, "runs", 7, layout_, "f");
  EXPECT_THAT(abandon_checkpoint(files_, "runs", 7, layout_, "e"),
              ElementsAre(HasSubstr("is another process's")));
}

}  // namespace
}  // namespace zero::testing
