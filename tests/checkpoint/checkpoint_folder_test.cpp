// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/errors.h"
#include "weights/checkpoint_reader.h"
#include "weights/damaged_checkpoint.h"
#include "weights/text_file.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CheckpointFolder : public ::testing::Test {
 protected:
  void save(std::int64_t step, std::uint32_t seed = 1) {
    EXPECT_THAT(save_checkpoint(files_, "runs", step, layout_, seed), IsEmpty());
  }
  void write(const std::string& path, const std::string& text) { write_text(files_, path, text); }
  std::vector<std::string> names() { return files_.list("runs"); }
  /// The names in the folder, newest first, "!" behind those that are not complete.
  std::vector<std::string> found() {
    std::vector<std::string> names;
    for (const FoundCheckpoint& step : find_checkpoints(files_, "runs")) {
      EXPECT_EQ(step.path, "runs/" + text_of(step.name));
      names.push_back(text_of(step.name) + (step.complete() ? "" : "!"));
    }
    return names;
  }
  std::string content(const std::string& path) { return read_text(files_, path, 1 << 20); }

  CheckpointLayout layout_ = small_layout();
  MemoryFiles files_;
};

TEST(CheckpointName, IsReadAsWritten) {
  for (const CheckpointName name :
       {CheckpointName{0, FolderState::committed}, CheckpointName{500, FolderState::old},
        CheckpointName{99999999, FolderState::partial},
        CheckpointName{123456789012, FolderState::removed},
        CheckpointName{7, FolderState::removed, 12}}) {
    EXPECT_EQ(parse_checkpoint_name(text_of(name)), name) << text_of(name);
  }
  EXPECT_EQ(text_of({500}), "step_00000500");
  EXPECT_EQ(text_of({500, FolderState::partial}), "step_00000500.partial");
  EXPECT_EQ(text_of({1234567890, FolderState::removed, 2}), "step_1234567890.removed.2");
}

TEST(CheckpointName, IsNoOtherName) {
  for (const char* name : {"", "step_", "step_5", "step_00000500x", "xstep_00000500",
                           "step_000000500", "step_-0000500", "step_+0000500", "step_00000500.",
                           "step_00000500.tmp", "step_00000500.removed.", "step_00000500.removed.1",
                           "step_00000500.removed.02", "step_00000500.removed.2.3",
                           "step_99999999999999999999", "Step_00000500", "step_00000500/"}) {
    EXPECT_FALSE(parse_checkpoint_name(name)) << name;
  }
}

TEST_F(CheckpointFolder, FindsNothingWhereNothingIs) {
  EXPECT_THAT(find_checkpoints(files_, "nowhere/runs"), IsEmpty());
  files_.make_folder("runs");
  EXPECT_THAT(found(), IsEmpty());
  write("file", "");
  EXPECT_THAT(error_of([&] { find_checkpoints(files_, "file"); }), HasSubstr("Not a directory"));
}

TEST_F(CheckpointFolder, FindsNewestFirstAndSaysWhyOneIsNotComplete) {
  save(500);
  save(1000000000);
  save(20);
  save(30);
  files_.remove_file("runs/step_00000030/COMMIT");
  files_.make_folder("runs/step_00000040.partial");
  files_.make_folder("runs/step_00000060");
  write("runs/step_00000070", "a file");
  for (const char* other : {"runs/step_5", "runs/step_00000500x", "runs/tokens", "runs/step_x"}) {
    files_.make_folder(other);
  }
  EXPECT_THAT(found(),
              ElementsAre("step_1000000000", "step_00000500", "step_00000070!", "step_00000060!",
                          "step_00000040.partial!", "step_00000030!", "step_00000020"));
  const auto steps = find_checkpoints(files_, "runs");
  EXPECT_THAT(steps[2].fault, HasSubstr("runs/step_00000070: is no folder"));
  EXPECT_THAT(steps[3].fault, HasSubstr("runs/step_00000060/COMMIT: is missing"));
  EXPECT_THAT(steps[4].fault, HasSubstr("is being written, or was cut off while it was"));
  EXPECT_THAT(steps[5].fault, HasSubstr("runs/step_00000030/COMMIT: is missing"));
}

TEST_F(CheckpointFolder, MakesMissingFoldersAndMakesThemDurable) {
  EXPECT_THAT(save_checkpoint(files_, "/a/b/c", 1, layout_, 1), IsEmpty());
  EXPECT_TRUE(find_checkpoints(files_, "/a/b/c/")[0].complete());
  write("file", "");
  EXPECT_THAT(error_of([&] { begin_checkpoint(files_, "file/runs", 1, layout_, kOwner); }),
              HasSubstr("file: is there already and is not a folder"));
  EXPECT_THAT(error_of([&] { begin_checkpoint(files_, "file", 1, layout_, kOwner); }),
              HasSubstr("file: is there already and is not a folder"));
}

TEST_F(CheckpointFolder, AsksForRoomBeforeTheFirstByte) {
  files_.set_free_bytes(layout_.bytes());
  EXPECT_THAT(error_of([&] { begin_checkpoint(files_, "runs", 7, layout_, kOwner); }),
              ::testing::MatchesRegex("runs: has room for .* MB, expected .* MB for the checkpoint "
                                      "of step 7: its files have .* MB, index.json and .* tables "
                                      "may take .* MB; free space there"));
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_THAT(error_of([&] { begin_checkpoint(files_, "runs", -1, layout_, kOwner); }),
              HasSubstr("step -1"));
}

TEST_F(CheckpointFolder, AsksForFewerCheckpointsOnlyWhereItHasSome) {
  save(3);
  files_.set_free_bytes(layout_.bytes());
  EXPECT_THAT(error_of([&] { begin_checkpoint(files_, "runs", 7, layout_, kOwner); }),
              ::testing::EndsWith("; free space there, or keep fewer checkpoints"));
}

TEST_F(CheckpointFolder, MakesFilesAtTheirSizes) {
  begin_checkpoint(files_, "runs", 7, layout_, kOwner);
  for (const LayoutFile& file : layout_.files()) {
    EXPECT_EQ(content("runs/step_00000007.partial/" + file.name).size(),
              static_cast<std::size_t>(file.bytes));
  }
}

TEST_F(CheckpointFolder, HoldsTheSameBytesWheneverEqualStatesAreSaved) {
  save(7, 1);
  MemoryFiles other;
  save_checkpoint(other, "elsewhere", 7, layout_, 1);
  EXPECT_EQ(files_.tree().contents("runs"), other.tree().contents("elsewhere"));
  save(7, 2);
  EXPECT_NE(files_.tree().contents("runs"), other.tree().contents("elsewhere"));
}

TEST_F(CheckpointFolder, ReplacesACheckpointOfTheSameStep) {
  save(7, 1);
  save(7, 2);
  EXPECT_THAT(names(), ElementsAre("step_00000007"));
  EXPECT_EQ(CheckpointReader(files_, "runs/step_00000007").index().extra["seed"], 2);
}

TEST_F(CheckpointFolder, LoadsTheOldOneWhileItIsReplaced) {
  save(7, 1);
  files_.rename("runs/step_00000007", "runs/step_00000007.old");
  files_.make_folder("runs/step_00000007.partial");
  EXPECT_THAT(found(), ElementsAre("step_00000007.old", "step_00000007.partial!"));
  save(8);
  EXPECT_THAT(found(), ElementsAre("step_00000008", "step_00000007"));
  EXPECT_THAT(names(), ElementsAre("step_00000007", "step_00000008"));
}

TEST_F(CheckpointFolder, KeepsTheOldOneUntilItsSuccessorIsComplete) {
  save(7, 1);
  files_.rename("runs/step_00000007", "runs/step_00000007.old");
  save(7, 2);  // puts the old one back first, and replaces it
  files_.remove_file("runs/step_00000007/index.json");
  save(8);
  EXPECT_THAT(found(), ElementsAre("step_00000008", "step_00000007!"));
  save(7, 3);
  EXPECT_THAT(found(), ElementsAre("step_00000008", "step_00000007"));
  files_.rename("runs/step_00000007", "runs/step_00000007.old");
  files_.make_folder("runs/step_00000007");  // damaged by another hand
  save(8);
  EXPECT_THAT(found(), ElementsAre("step_00000008", "step_00000007!", "step_00000007.old"));
  save(7, 4);
  EXPECT_THAT(found(), ElementsAre("step_00000008", "step_00000007"));
  EXPECT_THAT(names(), ElementsAre("step_00000007", "step_00000008"));
}

TEST_F(CheckpointFolder, RemovesWhatCutSavesLeft) {
  begin_checkpoint(files_, "runs", 7, layout_, kOwner);
  write_checkpoint(files_, "runs", 7, layout_, 1);
  EXPECT_THAT(found(), ElementsAre("step_00000007.partial!"));
  save(8);
  EXPECT_THAT(names(), ElementsAre("step_00000008"));
}

TEST_F(CheckpointFolder, IsLeftAsBeforeBySavesThatFail) {
  save(7, 1);
  begin_checkpoint(files_, "runs", 8, layout_, kOwner);
  EXPECT_THAT(abandon_checkpoint(files_, "runs", 8, layout_, kOwner), IsEmpty());
  EXPECT_THAT(abandon_checkpoint(files_, "runs", 8, layout_, kOwner), IsEmpty());
  EXPECT_THAT(names(), ElementsAre("step_00000007"));
  EXPECT_THAT(abandon_checkpoint(files_, "nowhere", 8, layout_, kOwner),
              ElementsAre(HasSubstr("nowhere: cannot use the folder")));
}

TEST_F(CheckpointFolder, KeepsFilesOfOthersAndSaysSo) {
  save(7, 1);
  write("runs/step_00000007/notes.txt", "mine");
  write("runs/step_00000007/weights/lora.safetensors", "mine");
  write("runs/step_00000007/moments/moment0-1-of-2.safetensors", "mine");
  files_.make_folder("runs/step_00000007/moments/moment1.safetensors");
  EXPECT_THAT(save_checkpoint(files_, "runs", 7, layout_, 2),
              ElementsAre("runs/step_00000007.removed: was kept with files that no checkpoint "
                          "wrote: moments/moment0-1-of-2.safetensors, moments/moment1.safetensors, "
                          "notes.txt, weights/lora.safetensors"));
  EXPECT_THAT(names(), ElementsAre("step_00000007", "step_00000007.removed"));
  EXPECT_THAT(files_.list("runs/step_00000007.removed"),
              ElementsAre("moments", "notes.txt", "weights"));
  EXPECT_EQ(content("runs/step_00000007.removed/notes.txt"), "mine");
  EXPECT_THAT(found(), ElementsAre("step_00000007"));
  save(8);  // says nothing again
  write("runs/step_00000007/COMMIT.bak", "mine");
  EXPECT_THAT(remove_checkpoint(files_, "runs/step_00000007"),
              ElementsAre("runs/step_00000007.removed.2: was kept with files that no checkpoint "
                          "wrote: COMMIT.bak"));
  save(9);
  EXPECT_THAT(names(), ElementsAre("step_00000007.removed", "step_00000007.removed.2",
                                   "step_00000008", "step_00000009"));
}

TEST_F(CheckpointFolder, SetsAsideWhatIsNoFolder) {
  files_.make_folder("runs");
  write("runs/step_00000007", "mine");
  EXPECT_THAT(save_checkpoint(files_, "runs", 7, layout_, 1),
              ElementsAre("runs/step_00000007: was renamed to runs/step_00000007.removed and kept: "
                          "it is no folder"));
  EXPECT_THAT(found(), ElementsAre("step_00000007"));
  EXPECT_EQ(content("runs/step_00000007.removed"), "mine");
  save(8);
}

TEST_F(CheckpointFolder, RemovesOnlyFoldersOfCheckpoints) {
  files_.make_folder("runs");
  for (const char* path : {"runs", "runs/step_7", "runs/step_00000007x"}) {
    EXPECT_THAT(error_of([&] { remove_checkpoint(files_, path); }),
                HasSubstr("is not called as the folder of a checkpoint, step_00000500"));
  }
  EXPECT_THAT(error_of([&] { remove_checkpoint(files_, "runs/step_00000007"); }),
              HasSubstr("runs/step_00000007: cannot rename"));
}

TEST_F(CheckpointFolder, RemovesADamagedCheckpoint) {
  save(7);
  write("runs/step_00000007/index.json", "damaged");
  EXPECT_THAT(remove_checkpoint(files_, "runs/step_00000007/"),
              ElementsAre(HasSubstr("wrote: weights/tokenizer.model")))
      << "without an index, a file of a name that not every checkpoint has may be the user's";
  EXPECT_THAT(files_.tree().contents("runs"),
              ElementsAre(::testing::Pair("step_00000007.removed/", ""),
                          ::testing::Pair("step_00000007.removed/weights/", ""),
                          ::testing::Pair("step_00000007.removed/weights/tokenizer.model", "")));
}

TEST_F(CheckpointFolder, ACheckpointThatCannotBeReadIsNotDamaged) {
  save(7);
  for (const char* file : {"COMMIT", "index.json", "weights/model"}) {
    files_.refuse_reads(std::string("runs/step_00000007/") + file);
    const FoundCheckpoint step = find_checkpoints(files_, "runs")[0];
    EXPECT_TRUE(step.unreadable);
    EXPECT_THAT(step.fault, HasSubstr("Too many open files"));
    try {
      const CheckpointReader reader(files_, step.path);
      ADD_FAILURE() << file << " was read";
    } catch (const DamagedCheckpoint& error) {
      ADD_FAILURE() << error.what();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(file));
    }
  }
  save(8);
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 1}).steps, IsEmpty());
  files_.refuse_reads("");
  EXPECT_THAT(found(), ElementsAre("step_00000008", "step_00000007"));
  for (const char* file : {"weights/config.json", "index.json", "COMMIT"}) {
    files_.remove_file(std::string("runs/step_00000007/") + file);
    EXPECT_FALSE(find_checkpoints(files_, "runs")[1].unreadable);
    EXPECT_THROW(CheckpointReader(files_, "runs/step_00000007"), DamagedCheckpoint) << file;
  }
  EXPECT_THROW(CheckpointReader(files_, "runs/step_00000009"), DamagedCheckpoint);
}

TEST_F(CheckpointFolder, KeepsTheOldOneIfItCannotBeRead) {
  save(7, 1);
  files_.refuse_reads("runs/step_00000007/");
  EXPECT_THAT(
      save_checkpoint(files_, "runs", 7, layout_, 2),
      ElementsAre(
          AllOf(HasSubstr("runs/step_00000007: was kept as runs/step_00000007.old, since it could "
                          "not be read: "),
                HasSubstr("Too many open files"))));
  EXPECT_THAT(error_of([&] { save_checkpoint(files_, "runs", 7, layout_, 3); }),
              AllOf(HasSubstr("Too many open files"), HasSubstr("it was kept, as was ")));
  abandon_checkpoint(files_, "runs", 7, layout_, kOwner);
  EXPECT_THAT(names(), ElementsAre("step_00000007", "step_00000007.old"));
  files_.refuse_reads("runs/step_00000007.old/");
  save(8);
  EXPECT_THAT(names(), ElementsAre("step_00000007", "step_00000007.old", "step_00000008"));
  files_.refuse_reads("");
  EXPECT_EQ(CheckpointReader(files_, "runs/step_00000007.old").index().extra["seed"], 1);
  EXPECT_EQ(CheckpointReader(files_, "runs/step_00000007").index().extra["seed"], 2);
  save(8);
  EXPECT_THAT(names(), ElementsAre("step_00000007", "step_00000008"));
}

TEST_F(CheckpointFolder, AFolderOfAnotherStepThatStaysIsANoteOfTheSave) {
  for (const char* name : {"runs/step_00000007.partial", "runs/step_00000007.old"}) {
    save(7);
    if (std::string_view(name).ends_with("old")) {
      files_.rename("runs/step_00000007", name);
    } else {
      files_.make_folder(name);
    }
    files_.fail_at(1);  // behind the sync of the parent folder: the rename
    EXPECT_THAT(save_checkpoint(files_, "runs", 8, layout_, 1),
                ElementsAre(HasSubstr("No space left on device")));
    EXPECT_TRUE(find_checkpoints(files_, "runs")[0].complete());
    files_.fail_at(1);
    EXPECT_THAT(error_of([&] { save_checkpoint(files_, "runs", 7, layout_, 1); }),
                HasSubstr("No space left on device"));
    save(8);
  }
}

class Prune : public CheckpointFolder {
 protected:
  void SetUp() override {
    for (const std::int64_t step : {10, 20, 30, 40, 50}) save(step);
  }
};

TEST_F(Prune, KeepsTheLast) {
  EXPECT_THAT(prune_checkpoints(files_, "runs", {}).steps, IsEmpty());
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 5}).steps, IsEmpty());
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 3}).steps, ElementsAre(20, 10));
  EXPECT_THAT(found(), ElementsAre("step_00000050", "step_00000040", "step_00000030"));
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 1}).steps, ElementsAre(40, 30));
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 1}).steps, IsEmpty());
  EXPECT_THAT(names(), ElementsAre("step_00000050"));
  EXPECT_THAT(error_of([&] { prune_checkpoints(files_, "runs", {.last = -1}); }),
              HasSubstr("keep_last is -1 and keep_every 0; expected numbers from 0"));
}

TEST_F(Prune, KeepsMultiplesForGood) {
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 1, .every = 20}).steps,
              ElementsAre(30, 10));
}

TEST_F(Prune, CountsFromTheOneJustSavedBack) {
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 1}, 30).steps, ElementsAre(20, 10));
  EXPECT_THAT(found(), ElementsAre("step_00000050", "step_00000040", "step_00000030"));
}

TEST_F(Prune, CountsOnlyCompleteOnesAndLeavesTheOthers) {
  files_.remove_file("runs/step_00000050/COMMIT");
  files_.remove_file("runs/step_00000040/weights/config.json");
  write("runs/step_00000030/weights/config.json", "{\"a\": 1} and more\n");
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 1}).steps, ElementsAre(10));
  EXPECT_THAT(found(),
              ElementsAre("step_00000050!", "step_00000040!", "step_00000030!", "step_00000020"));
}

TEST_F(Prune, GoesOnAfterAFailureAndSaysSo) {
  files_.fail_at(0);  // the rename of the first
  const Pruned pruned = prune_checkpoints(files_, "runs", {.last = 3});
  EXPECT_THAT(pruned.steps, ElementsAre(10));
  EXPECT_THAT(pruned.notes, ElementsAre("runs/step_00000020: No space left on device"));
  files_.fail_at(3);  // COMMIT's removal is the third call
  EXPECT_THAT(prune_checkpoints(files_, "runs", {.last = 3}).notes,
              ElementsAre(HasSubstr("runs/step_00000020.removed: could not be removed: ")));
  EXPECT_THAT(found(), ElementsAre("step_00000050", "step_00000040", "step_00000030"));
  save(60);
  EXPECT_THAT(names(),
              ElementsAre("step_00000030", "step_00000040", "step_00000050", "step_00000060"));
}

}  // namespace
}  // namespace zero::testing
