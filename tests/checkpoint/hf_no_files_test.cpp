// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Folders of models in which a name is that of a pipe, a folder or a file too large.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/checkpoint/tensor_files.h"
#include "weights/hf/config.h"
#include "weights/model_files.h"

namespace zero::testing {
namespace {

using ::testing::HasSubstr;

// As a file that was truncated to a wrong length, or a pipe by mistake.
TEST(HuggingFaceFolder, WhoseConfigIsHugeOrNoFileIsRefusedUnread) {
  Scratch scratch;
  const std::string path = scratch.path("config.json");
  write_bytes(path, "{}");
  std::filesystem::resize_file(path, std::uintmax_t{30} << 30U);
  EXPECT_THAT(error_of([&] { read_hf_config(scratch.path()); }),
              HasSubstr("config.json: has 32212254720 bytes, expected at most 67108864"));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { read_hf_config(scratch.path()); }),
              HasSubstr("config.json: is not a regular file"));
}

TEST(HuggingFaceFolder, WhoseWeightsAreNoFileIsRefusedAtOnce) {
  Scratch scratch;
  const std::string weights = scratch.path("model.safetensors");
  const std::string index = weights + ".index.json";
  const auto refusal = [&] { return error_of([&] { open_weights(scratch.path()); }); };
  ASSERT_EQ(::mkfifo(index.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("model.safetensors.index.json: is not a regular file"));
  ASSERT_EQ(::mkfifo(weights.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("model.safetensors: is not a regular file; expected a file"));
  std::filesystem::remove(weights);
  std::filesystem::create_directory(weights);
  EXPECT_THAT(refusal(), HasSubstr("model.safetensors: is not a regular file; expected a file"));
}

}  // namespace
}  // namespace zero::testing
