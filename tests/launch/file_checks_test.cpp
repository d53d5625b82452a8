// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/file_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/errors.h"
#include "tests/launch/config_with.h"
#include "tests/scratch.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Those of checkpoints too: the first rank, which makes their folder, may be on another host.
TEST(FileChecks, EveryRankChecksThePlacesOfTheRun) {
  const Scratch folder;
  const std::string file = folder.write("file", "");
  const auto refusal = [](const std::string& place) {
    return error_of([&] { check_places(config_with({"run.log=null", place})); });
  };
  EXPECT_EQ(refusal("run.checkpoint.folder=" + folder.path("new/ck")), "no error");
  EXPECT_THAT(refusal("run.checkpoint.folder=" + file + "/ck"),
              HasSubstr("run.checkpoint.folder: " + file + " is not a folder"));
  EXPECT_THAT(refusal("run.resume=" + folder.path("none")),
              StartsWith("run.resume: " + folder.path("none") + " is no folder"));
}

}  // namespace
}  // namespace zero::testing
