// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// The order in which a folder of codes comes to the disk, and disks that fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "launch/generate/generate_flags.h"
#include "launch/generate/generate_program.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/errors.h"
#include "tests/scratch.h"
#include "text/tokenizer_config.h"

namespace zero::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Calls = std::vector<std::pair<std::string, std::string>>;  // with their paths

class SaveQuantized : public ::testing::Test {
 protected:
  SaveQuantized() {
    std::filesystem::copy(ZERO_RECORDED_FILES "/llama_tiny", model_);
    write_bytes(model_ + "/tokenizer.json", "{}");
  }
  int save(files::FileSystem& disk) const {
    GenerateFlags flags;
    flags.model = model_;
    flags.save_quantized = out_;
    flags.weights = "nf4";
    flags.threads = "1";
    return save_quantized(flags, disk);
  }

  const Scratch scratch_;
  const std::string model_ = scratch_.path("model");
  const std::string out_ = scratch_.path("out");
  const std::string partial_ = out_ + ".partial";
};

std::ptrdiff_t count(const Calls& calls, const std::string& call, const std::string& path) {
  return std::ranges::count(calls, std::pair(call, path));
}
/// The place of the last such call; -1: none.
std::ptrdiff_t last(const Calls& calls, const std::string& call, const std::string& path) {
  const auto found = std::ranges::find(calls.rbegin(), calls.rend(), std::pair(call, path));
  return calls.rend() - found - 1;
}

TEST_F(SaveQuantized, SyncsFilesThenTheirNamesThenRenamesThenSyncsTheNameOfTheFolder) {
  Calls calls;
  HookedDisk disk(
      [&](const std::string& call, const std::string& path) { calls.emplace_back(call, path); });
  EXPECT_EQ(save(disk), 0);
  EXPECT_THAT(files::disk().list(out_),
              UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json"));
  const std::ptrdiff_t folder = last(calls, "sync_folder", partial_);
  const std::ptrdiff_t rename = last(calls, "rename", partial_);
  for (const std::string& name : files::disk().list(out_)) {
    const std::string path = partial_ + "/" + name;
    const std::ptrdiff_t write = last(calls, "write", path);
    const std::ptrdiff_t sync = last(calls, "sync", path);
    EXPECT_LT(last(calls, "create", path), write) << name;
    EXPECT_LT(write, sync) << name;
    EXPECT_LT(sync, folder) << name;
    EXPECT_EQ(count(calls, "create", path), 1) << name;
  }
  EXPECT_LT(folder, rename);
  EXPECT_EQ(count(calls, "rename", partial_), 1);
  EXPECT_LT(rename, last(calls, "sync_folder", scratch_.path()));
}

TEST_F(SaveQuantized, CarriesChatTemplatesOfFilesOfTheirOwn) {
  std::filesystem::create_directory(model_ + "/additional_chat_templates");
  write_bytes(model_ + "/additional_chat_templates/default.jinja", "the folder's");
  EXPECT_EQ(save(files::disk()), 0);
  EXPECT_EQ(read_tokenizer_config(out_).chat_template.text, "the folder's");
}

TEST_F(SaveQuantized, LeavesNothingIfTheDiskFailsBeforeTheRename) {
  Faults none("");
  HookedDisk counted(std::ref(none));
  save(counted);
  std::filesystem::remove_all(out_);
  for (const std::string call : {"create", "write", "sync", "sync_folder", "rename"}) {
    const int last = none.calls()[call] - (call == "sync_folder" ? 1 : 0);
    ASSERT_GT(last, 0) << call;
    for (int number = 0; number < last; ++number) {
      Faults faults("Input/output error");
      faults.fail_at(call, number);
      HookedDisk disk(std::ref(faults));
      EXPECT_THAT(error_of([&] { save(disk); }), HasSubstr("cannot " + call + ": Input/output"));
      EXPECT_THAT(scratch_.names(), ElementsAre("model")) << call << " " << number;
    }
  }
}

// Another process may have found the folder already.
TEST_F(SaveQuantized, LeavesTheWholeFolderIfTheSyncOfItsNameFails) {
  Faults faults("Input/output error");
  faults.fail_at("sync_folder", 1);
  HookedDisk disk(std::ref(faults));
  EXPECT_THAT(error_of([&] { save(disk); }),
              HasSubstr(scratch_.path() + ": cannot sync_folder: Input/output error"));
  EXPECT_THAT(scratch_.names(), ElementsAre("model", "out"));
  EXPECT_EQ(files::disk().list(out_).size(), 3U);
}

}  // namespace
}  // namespace zero::testing
