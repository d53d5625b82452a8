// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints on the disk of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "files/file_system.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "weights/checkpoint_reader.h"

namespace zero::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

/// What is in a folder and below, with the content of files.
std::map<std::string, std::string> all_in(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& each : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(each.path(), folder).string();
    all[name] = each.is_regular_file() ? file_bytes(each.path().string()) : "";
  }
  return all;
}

// As a run's folder that holds a link to a checkpoint of another run, to begin there.
TEST_F(CheckpointDisk, ReadsBehindSymbolicLinksAndRemovesThemAlone) {
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
  const auto before = all_in(scratch_.path("elsewhere"));
  EXPECT_THAT(prune_checkpoints(disk_, runs_, {.last = 1}).notes,
              ElementsAre(HasSubstr("step_00000001.removed: was a symbolic link: the link was "
                                    "removed, and nothing behind it")));
  EXPECT_EQ(all_in(scratch_.path("elsewhere")), before);
  EXPECT_THAT(names(), ElementsAre("step_00000002", "step_00000003"));
  EXPECT_THAT(save_checkpoint(disk_, runs_, 3, layout_, 1),
              ElementsAre(HasSubstr("was a symbolic link")));
  EXPECT_TRUE(find_checkpoints(disk_, runs_)[0].complete());
  EXPECT_FALSE(fs::exists(scratch_.path("nowhere")));
}

TEST_F(CheckpointDisk, RemovesNoFileBehindALinkInsideACheckpoint) {
  save(1);
  save(2);
  const std::string victim = scratch_.path("victim");
  fs::rename(path(1) + "/weights", victim);
  fs::create_directory_symlink(victim, path(1) + "/weights");
  const auto before = all_in(victim);
  EXPECT_THAT(prune_checkpoints(disk_, runs_, {.last = 1}).notes, IsEmpty());
  EXPECT_FALSE(fs::exists(path(1)));
  EXPECT_EQ(all_in(victim), before);
}

// A user who may write to the folder puts links where another user's run will write.
TEST_F(CheckpointDisk, FollowsNoLinkThatWasPutWhereItWrites) {
  save(1);
  const std::string victim = scratch_.path("victim");
  fs::copy(path(1), victim, fs::copy_options::recursive);
  const auto before = all_in(victim);
  for (const char* name : {"step_00000002.partial", "step_00009999.partial",
                           "step_00009999.removed", "step_00000002.old"}) {
    fs::create_directory_symlink(victim, runs_ + "/" + name);
  }
  save_checkpoint(disk_, runs_, 2, layout_, 1);
  EXPECT_EQ(all_in(victim), before);
  EXPECT_TRUE(find_checkpoints(disk_, runs_)[0].complete());
  EXPECT_THAT(verify_checkpoint(disk_, path(2)), IsEmpty());
  EXPECT_FALSE(fs::is_symlink(path(2)));
  EXPECT_THAT(names(), ElementsAre("step_00000001", "step_00000002"));

  begin_checkpoint(disk_, runs_, 3, layout_, kOwner);
  fs::rename(partial_path(runs_, 3), scratch_.path("aside"));
  fs::create_directory_symlink(victim, partial_path(runs_, 3));
  EXPECT_THAT(error_of([&] { disk_.make_folder(partial_path(runs_, 3)); }),
              HasSubstr("cannot make the folder: a symbolic link has the name; remove the link"));
  abandon_checkpoint(disk_, runs_, 3, layout_, kOwner);
  EXPECT_EQ(all_in(victim), before);
}

TEST_F(CheckpointDisk, WritesNoFileBehindALink) {
  const std::string victim = scratch_.path("victim");
  const std::string target = scratch_.path("weights.partial");
  write_bytes(victim, "kept");
  fs::create_symlink(victim, target);
  EXPECT_THAT(error_of([&] { disk_.open_write(target); }),
              HasSubstr("weights.partial: cannot open for writing: is a symbolic link"));
  disk_.create(target, 3);
  EXPECT_EQ(file_bytes(victim), "kept");
  EXPECT_FALSE(fs::is_symlink(target));
  EXPECT_EQ(fs::file_size(target), 3U);
  fs::remove(target);
  fs::create_hard_link(victim, target);
  disk_.create(target, 0);
  EXPECT_EQ(file_bytes(victim), "kept");
}

TEST_F(CheckpointDisk, NamesAFolderThatVanishes) {
  begin_checkpoint(disk_, runs_, 1, layout_, kOwner);
  const CheckpointIndex index = write_checkpoint(disk_, runs_, 1, layout_, 1);
  fs::remove_all(runs_);
  EXPECT_THAT(error_of([&] { commit_checkpoint(disk_, runs_, index, kOwner); }),
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
}  // namespace zero::testing
