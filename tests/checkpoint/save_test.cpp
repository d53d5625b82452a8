// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Weights into files over ranks, and how ranks agree on failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "checkpoint/weights.h"
#include "tests/checkpoint/engine_of.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/tensor_files.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Odd sizes; one of a mebibyte and more, so that there are blocks of several ranks.
const Tensors kMixed{{{"b", {3, 5}},
                      {"a", {}},
                      {"none", {0, 4}},
                      {"frozen", {9}, init::zeros(), false},
                      {"large", {7, 40'009}},
                      {"half", {2, 2}, init::zeros(), false}},
                     DType::bf16};

TEST(SaveWeights, TheBytesDependOnValuesAlone) {
  Scratch scratch;
  const std::string path = scratch.path("weights");
  std::string first;
  for (const int world : {1, 2, 3, 7}) {
    EXPECT_THAT(errors_of(world, kMixed,
                          [&](Engine& engine) {
                            fill(engine, kMixed, some_value);
                            save_weights(engine, path, names::plain());
                          }),
                Each("no error"));
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
    if (first.empty()) first = file_bytes(path);
    EXPECT_TRUE(file_bytes(path) == first) << world;
  }
  const SafetensorsReader file(path);
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  EXPECT_EQ(file.find("frozen")->type, FileType::f32);
}

TEST(SaveWeights, WhatOneWorldSavesAnotherLoads) {
  Scratch scratch;
  const auto save = [&](Engine& engine) {
    fill(engine, kMixed, some_value);
    save_weights(engine, scratch.path("weights"), names::plain());
  };
  const auto load = [&](Engine& engine) {
    load_weights(engine, scratch.path("weights"), names::plain());
    EXPECT_TRUE(holds(engine, kMixed, some_value));
  };
  EXPECT_THAT(errors_of(3, kMixed, save), Each("no error"));
  EXPECT_THAT(errors_of(2, kMixed, load), Each("no error"));
}

/// Saves kMixed on 3 ranks, of which rank 2's disk fails at a call; all ranks must say the same.
std::string error_of_saving(const std::string& path, const std::string& call = {}) {
  Faults faults("No space left on device");
  faults.fail_at(call, 0);
  HookedDisk disk(std::ref(faults));
  const auto errors = errors_of(3, kMixed, [&](Engine& engine) {
    fill(engine, kMixed, some_value);
    if (engine.communicator().rank() == 2) return save_weights(engine, path, names::plain(), disk);
    save_weights(engine, path, names::plain());
  });
  EXPECT_THAT(errors, Each(errors[0]));
  EXPECT_EQ(faults.happened(), !call.empty());
  return errors[0];
}

TEST(SaveWeights, AFailureOfOneRankLeavesTheOldFileWholeAndNothingBeside) {
  Scratch scratch;
  const std::string path = scratch.path("weights");
  write_bytes(path, "the old file");
  for (const char* call : {"open_write", "queue write", "sync"}) {
    EXPECT_EQ(error_of_saving(path, call),
              fmt::format("[rank 2] save_weights: {}.partial: cannot {}: No space left on device",
                          path, call));
    EXPECT_EQ(file_bytes(path), "the old file");
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
  }
  EXPECT_EQ(error_of_saving(path), "no error");
}

TEST(SaveWeights, AFullDiskIsFoundBeforeTheFirstWriteOnAllRanks) {
  Scratch scratch;
  const std::string path = scratch.path("weights");
  write_bytes(path, "the old file");
  const FileSizeLimit limit(64);
  EXPECT_THAT(error_of_saving(path),
              AllOf(HasSubstr("[rank 0] save_weights: " + path + ".partial: cannot make room for"),
                    HasSubstr("File too large")));
  EXPECT_EQ(file_bytes(path), "the old file");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
}

TEST(SaveWeights, AnUnwritableTargetIsRefusedOnAllRanks) {
  Scratch scratch;
  EXPECT_THAT(
      error_of_saving(scratch.path("none/weights")),
      HasSubstr("[rank 0] save_weights: " + scratch.path("none/weights") + ": cannot write there"));
  EXPECT_THAT(error_of_saving(scratch.path()),
              HasSubstr("is there already and is not a regular file"));
  EXPECT_TRUE(scratch.names().empty());
}

TEST(SaveWeights, TheLeftoverOfAKilledSaveIsReplaced) {
  Scratch scratch;
  write_bytes(scratch.path("weights.partial"), std::string(100'000, 'x'));
  EXPECT_EQ(error_of_saving(scratch.path("weights")), "no error");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
  EXPECT_EQ(SafetensorsReader(scratch.path("weights")).header().tensors.size(),
            kMixed.specs.size());
}

TEST(Together, EveryRankThrowsTheFirstFailingRanksError) {
  const Tensors one{{{"a", {1}}}};
  EXPECT_THAT(errors_of(4, one,
                        [](Engine& engine) {
                          together(engine, "a test", [&] {
                            if (engine.communicator().rank() == 3) throw 7;
                            if (engine.communicator().rank() == 2) throw std::bad_alloc();
                          });
                        }),
              Each("[rank 2] a test: std::bad_alloc"));
  EXPECT_THAT(errors_of(2, one,
                        [](Engine& engine) {
                          together(engine, "a test", [&] {
                            if (engine.communicator().rank() == 1) throw 7;
                          });
                        }),
              Each("[rank 1] a test: failed with an exception of unknown type"));
}

}  // namespace
}  // namespace zero::testing
