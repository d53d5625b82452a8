// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints on the disk of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint_files.h"
#include "device/files/file_system.h"
#include "memory_files.h"
#include "tests/errors.h"
#include "tests/scratch.h"

namespace zero {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::file_bytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kOwner;
using testing::large_layout;
using testing::MemoryFiles;
using testing::save_checkpoint;
using testing::Scratch;
using testing::small_layout;
using testing::write_bytes;
using testing::write_checkpoint;

class CheckpointDisk : public ::testing::Test {
 protected:
  void save(std::int64_t step, std::uint32_t seed = 1) {
    EXPECT_THAT(save_checkpoint(disk_, runs_, step, layout_, seed), IsEmpty());
  }
  std::string path(std::int64_t step) const { return checkpoint_path(runs_, {step}); }
  std::vector<std::string> names() { return disk_.list(runs_); }

  Scratch scratch_;
  files::FileSystem& disk_ = files::disk();
  std::string runs_ = scratch_.path("deep/runs");
  CheckpointLayout layout_ = small_layout();
};

TEST_F(CheckpointDisk, HoldsTheBytesThatMemoryHolds) {
  layout_ = large_layout();
  save(7);
  MemoryFiles memory;
  save_checkpoint(memory, "runs", 7, layout_, 1);
  for (const auto& [name, data] : memory.tree().contents("runs")) {
    if (name.ends_with('/')) continue;
    EXPECT_EQ(file_bytes(runs_ + "/" + name), data) << name;
  }
  EXPECT_THAT(verify_checkpoint(disk_, path(7)), IsEmpty());
  EXPECT_TRUE(find_checkpoints(disk_, runs_ + "/")[0].complete());
}

TEST_F(CheckpointDisk, ReplacesAndPrunes) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  save(3, 2);
  EXPECT_THAT(prune_checkpoints(disk_, runs_, {.last = 1}).steps, ElementsAre(2, 1));
  EXPECT_THAT(names(), ElementsAre("step_00000003"));
  EXPECT_EQ(CheckpointReader(disk_, path(3)).index().extra["seed"], 2);
}

TEST_F(CheckpointDisk, FollowsSymbolicLinksAndRemovesThem) {
  save(1);
  save(2);
  fs::rename(path(1), scratch_.path("elsewhere"));
  fs::create_directory_symlink(scratch_.path("elsewhere"), path(1));
  fs::create_directory_symlink(scratch_.path("nowhere"), path(3));
  const auto found = find_checkpoints(disk_, runs_);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_THAT(found[0].fault, HasSubstr("step_00000003: is no folder"));
  EXPECT_TRUE(found[1].complete());
  EXPECT_TRUE(found[2].complete());
  EXPECT_THAT(verify_checkpoint(disk_, path(1)), IsEmpty());
  EXPECT_THAT(prune_checkpoints(disk_, runs_, {.last = 1}).notes, IsEmpty());
  EXPECT_TRUE(fs::is_empty(scratch_.path("elsewhere")));
  EXPECT_THAT(names(), ElementsAre("step_00000002", "step_00000003"));
  EXPECT_THAT(save_checkpoint(disk_, runs_, 3, layout_, 1),
              ElementsAre(HasSubstr("it is no folder")));
  EXPECT_TRUE(find_checkpoints(disk_, runs_)[0].complete());
}

TEST_F(CheckpointDisk, RemovesNoFileBehindALinkInsideACheckpoint) {
  save(1);
  save(2);
  const std::string victim = scratch_.path("victim");
  fs::rename(path(1) + "/weights", victim);
  fs::create_directory_symlink(victim, path(1) + "/weights");
  EXPECT_THAT(prune_checkpoints(disk_, runs_, {.last = 1}).notes,
              ElementsAre(HasSubstr("weights")));
  EXPECT_TRUE(fs::exists(victim + "/config.json") || fs::exists(victim + "/model.safetensors") ||
              !fs::is_empty(victim));
}

TEST_F(CheckpointDisk, NamesAFolderThatVanishes) {
  begin_checkpoint(disk_, runs_, 1, layout_, kOwner);
  const CheckpointIndex index = write_checkpoint(disk_, runs_, 1, layout_, 1);
  fs::remove_all(runs_);
  EXPECT_THAT(message_of([&] { commit_checkpoint(disk_, runs_, index, kOwner); }),
              HasSubstr(runs_ + "/step_00000001.partial/"));
  EXPECT_THAT(abandon_checkpoint(disk_, runs_, 1, layout_, kOwner), ElementsAre(HasSubstr(runs_)));
}

TEST_F(CheckpointDisk, FindsAFileThatWasCut) {
  save(1);
  const std::string file = path(1) + "/moments/moment0-00001-of-00002.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_THAT(find_checkpoints(disk_, runs_)[0].fault, HasSubstr(file + ": has "));
  write_bytes(path(1) + "/index.json", "{}");
  EXPECT_THAT(find_checkpoints(disk_, runs_)[0].fault, HasSubstr(path(1) + "/COMMIT: found "));
}

}  // namespace
}  // namespace zero
