// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Logical tensors into files over ranks, without an engine, and how ranks agree on failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>

#include "dealt_tensors.h"
#include "scratch.h"

namespace zero {
namespace {

using ::testing::AllOf;
using testing::DealtTensors;
using ::testing::Each;
using testing::error_of;
using testing::errors_of;
using testing::file_bytes;
using ::testing::HasSubstr;
using testing::Scratch;
using testing::some_value;

const std::vector<DealtTensors::Spec> kMixed = {
    {"b", {3, 5}},
    {"a", {}},
    {"none", {0, 4}},
    {"frozen", {9}, DType::bf16},
    {"half", {2, 2}, DType::fp16},
};

TEST(SaveTensors, TheBytesDependOnValuesAlone) {
  Scratch scratch;
  const std::string path = scratch.path("weights");
  std::string first;
  for (const int world : {1, 2, 3, 7}) {
    EXPECT_THAT(errors_of(world,
                          [&](const Ranks& ranks) {
                            DealtTensors mine(kMixed, ranks.communicator.rank(), world, world + 1);
                            mine.fill(some_value);
                            save_tensors(ranks, mine.list(), path);
                          }),
                Each(""));
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
    if (first.empty()) first = file_bytes(path);
    EXPECT_EQ(file_bytes(path), first) << world;
  }
  const SafetensorsReader file(path);
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  EXPECT_EQ(file.find("frozen")->type, FileType::f32);
}

TEST(SaveTensors, WhatOneWorldSavesAnotherLoads) {
  Scratch scratch;
  const auto save = [&](const Ranks& ranks) {
    DealtTensors mine(kMixed, ranks.communicator.rank(), 3, 2);
    mine.fill(some_value);
    save_tensors(ranks, mine.list(), scratch.path("weights"));
  };
  const auto load = [&](const Ranks& ranks) {
    DealtTensors mine(kMixed, ranks.communicator.rank(), 2, 4);
    load_tensors(ranks, mine.list(), scratch.path("weights"), names::plain());
    EXPECT_TRUE(mine.holds(some_value));
  };
  EXPECT_THAT(errors_of(3, save), Each(""));
  EXPECT_THAT(errors_of(2, load), Each(""));
}

/// Saves kMixed on 3 ranks where `broken` changes rank 2's list; all ranks must say the same.
std::string error_of_saving(const std::string& path,
                            const std::function<void(DealtTensors&)>& broken) {
  const auto errors = errors_of(3, [&](const Ranks& ranks) {
    DealtTensors mine(kMixed, ranks.communicator.rank(), 3, 2);
    mine.fill(some_value);
    if (ranks.communicator.rank() == 2) broken(mine);
    save_tensors(ranks, mine.list(), path);
  });
  EXPECT_THAT(errors, Each(errors[0]));
  return errors[0];
}

TEST(SaveTensors, AFailureOfOneRankLeavesTheOldFileWholeAndNothingBeside) {
  Scratch scratch;
  const std::string path = scratch.path("weights");
  testing::write_bytes(path, "the old file");
  const auto unreadable = [](DealtTensors& mine) {
    View& values = mine.list()[0].parts.at(0).values;
    values = View(values.data(), values.count(), DType::i32, nullptr);
  };
  EXPECT_THAT(error_of_saving(path, unreadable),
              HasSubstr("[rank 2] save_weights: elements of I32 cannot be read"));
  EXPECT_EQ(file_bytes(path), "the old file");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});

  const auto outside = [](DealtTensors& mine) { mine.list()[0].parts.at(0).begin = 14; };
  EXPECT_THAT(error_of_saving(path, outside),
              HasSubstr("[rank 2] save_weights: tensor \"b\" of 15 elements has a part of 2 "
                        "elements from 14 on"));
  const auto missing = [](DealtTensors& mine) { mine.list()[0].parts.clear(); };
  EXPECT_THAT(error_of_saving(path, missing), HasSubstr("elements, expected each of 29 once"));
  EXPECT_EQ(file_bytes(path), "the old file");
}

TEST(SaveTensors, AFullDiskIsFoundBeforeTheFirstWriteOnAllRanks) {
  Scratch scratch;
  const std::string path = scratch.path("weights");
  testing::write_bytes(path, "the old file");
  const testing::FileSizeLimit limit(64);
  EXPECT_THAT(error_of_saving(path, [](DealtTensors&) {}),
              AllOf(HasSubstr("[rank 0] save_weights: " + path + ".partial: cannot make room for"),
                    HasSubstr("File too large")));
  EXPECT_EQ(file_bytes(path), "the old file");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
}

TEST(SaveTensors, AnUnwritableTargetIsRefusedOnAllRanks) {
  Scratch scratch;
  EXPECT_THAT(
      error_of_saving(scratch.path("none/weights"), [](DealtTensors&) {}),
      HasSubstr("[rank 0] save_weights: " + scratch.path("none/weights") + ": cannot write there"));
  EXPECT_THAT(error_of_saving(scratch.directory(), [](DealtTensors&) {}),
              HasSubstr("is there already and is not a regular file"));
  EXPECT_TRUE(scratch.names().empty());
}

TEST(SaveTensors, TheLeftoverOfAKilledSaveIsReplaced) {
  Scratch scratch;
  testing::write_bytes(scratch.path("weights.partial"), std::string(100'000, 'x'));
  EXPECT_EQ(error_of_saving(scratch.path("weights"), [](DealtTensors&) {}), "");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"weights"});
  EXPECT_EQ(SafetensorsReader(scratch.path("weights")).header().tensors.size(), kMixed.size());
}

TEST(Together, EveryRankThrowsTheFirstFailingRanksError) {
  EXPECT_THAT(errors_of(4,
                        [](const Ranks& ranks) {
                          together(ranks, "a test", [&] {
                            if (ranks.communicator.rank() == 3) throw 7;
                            if (ranks.communicator.rank() == 2) throw std::bad_alloc();
                          });
                        }),
              Each("[rank 2] a test: std::bad_alloc"));
  EXPECT_THAT(errors_of(2,
                        [](const Ranks& ranks) {
                          together(ranks, "a test", [&] {
                            if (ranks.communicator.rank() == 1) throw 7;
                          });
                        }),
              Each("[rank 1] a test: failed with an exception of unknown type"));
}

}  // namespace
}  // namespace zero
