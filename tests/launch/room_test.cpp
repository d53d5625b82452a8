// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Room on disks for what a run will save: asked for before its first step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "launch/process/disk_room.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/launch/cut_run.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MissingRoom, IsToldWithTheBytesThatAreMissing) {
  MemoryFiles files;
  files.make_folder("/runs");
  files.set_free_bytes(5'000'000);
  const auto missing = [&](std::int64_t bytes) {
    const WantedRoom wanted{"run.save_weights", "/runs/a/ck", "the weights", bytes, ", or wait"};
    return missing_room(files, {&wanted, 1});
  };
  EXPECT_EQ(missing(5'000'000), "");
  EXPECT_EQ(missing(7'500'000),
            "run.save_weights: /runs/a/ck has room for 5.0 MB, and the weights take 7.5 MB: 2.5 MB "
            "are missing; free space there, or wait");
}

TEST(MissingRoom, IsThatOfAllFilesOfADisk) {
  const Scratch folder;
  MemoryFiles files;  // whose folders are the disk's too
  std::string above;
  for (const auto& part : std::filesystem::path(folder.path()).relative_path()) {
    above += "/" + part.string();
    files.make_folder(above);
  }
  files.set_free_bytes(5'000'000);
  const WantedRoom wanted[] = {{"run.checkpoint.folder", folder.path(), "a checkpoint", 3'000'000},
                               {"run.save_weights", folder.path(), "the weights", 2'500'000}};
  EXPECT_EQ(missing_room(files, std::span(wanted).first(1)), "");
  EXPECT_EQ(missing_room(files, std::span(wanted).last(1)), "");
  EXPECT_THAT(missing_room(files, wanted),
              HasSubstr("has room for 5.0 MB, and the weights and a checkpoint "
                        "(run.checkpoint.folder), on the same disk, take 5.5 MB: 500.0 kB are "));
}

// The last save would fail after all steps were computed.
TEST(MissingRoom, EndsEveryRankBeforeTheFirstStep) {
  const CutRun run;
  MemoryFiles full;
  full.set_free_bytes(1000);
  const auto refusal = [&](const Overrides& overrides) {
    return run.refusal({.world = 4, .overrides = overrides, .disk = &full});
  };
  EXPECT_THAT(refusal({}), AllOf(HasSubstr("run.checkpoint.folder: " + run.folder() +
                                           " has room for 1.0 kB, and the files of a checkpoint "
                                           "take "),
                                 HasSubstr(" are missing; free space there, give another folder")));
  const std::string weights = "run.save_weights=" + run.tiny().folder().path("w.safetensors");
  EXPECT_THAT(refusal({weights, "run.checkpoint.required=false"}),
              AllOf(HasSubstr("run.save_weights: " + run.tiny().folder().path()),
                    HasSubstr("has room for 1.0 kB, and the weights take ")));
  EXPECT_FALSE(std::filesystem::exists(run.folder() + "/step_00000006"));
  const Ended ended = run.start({.overrides = {"run.checkpoint.required=false"}, .disk = &full});
  EXPECT_THAT(ended.out, HasSubstr("warning: run.checkpoint.folder: "));
  EXPECT_TRUE(std::filesystem::exists(run.folder() + "/step_00000006"));
}

// What a killed run has left is removed by the next save.
TEST(MissingRoom, CountsWhatTheNextSaveRemovesAsFree) {
  MemoryFiles files;
  files.make_folder("/runs");
  for (const char* folder : {"/runs/step_00000003.partial", "/runs/step_00000002.removed",
                             "/runs/step_00000001", "/runs/other"}) {
    files.make_folder(folder);
    files.make_folder(std::string(folder) + "/weights");
    files.create(std::string(folder) + "/weights/model.safetensors", 3'000);
    files.create(std::string(folder) + "/index.json", 10);
  }
  EXPECT_EQ(leftover_bytes(files, "/runs"), 6'020);
  EXPECT_EQ(leftover_bytes(files, "/nowhere"), 0);
}

}  // namespace
}  // namespace zero::testing
