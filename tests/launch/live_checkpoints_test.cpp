// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "launch/checkpoints/checkpoint_tool.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/launch/saved_checkpoints.h"

namespace zero::checkpoint_tool {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::HookedDisk;
using ::testing::Not;
using testing::Saved;
using Verdict = Answer::Verdict;

/// A hook that prunes the checkpoint `folder` right before call number `number`, from 0, on it.
class Pruning {
 public:
  Pruning(std::string folder, int number) : folder_(std::move(folder)), left_(number) {}
  void operator()(const std::string& path) {
    const bool ours = path == folder_ || path.starts_with(folder_ + "/");
    if (ours && left_-- == 0) fs::rename(folder_, folder_ + ".removed");
  }
  bool happened() const { return left_ < 0; }

 private:
  std::string folder_;
  int left_;
};

using Command = std::function<Answer(files::FileSystem&, const std::string& folder)>;

// Whenever a live run prunes one of those that are looked at, the others are told of.
TEST(LiveCheckpoints, ARemovalMeanwhileIsNoDamage) {
  const Saved saved(3);
  const std::vector<Command> commands = {
      [](auto& files, auto& folder) { return list(files, folder, Form::text); },
      [](auto& files, auto& folder) { return verify(files, folder); },
      [](auto& files, auto& folder) { return prune(files, folder, {.last = 3}); }};
  for (std::size_t i = 0; i < commands.size(); ++i) {
    int told = 0;
    for (int number = 0;; ++number) {
      Pruning pruning(saved.at(2), number);
      HookedDisk live([&](const std::string&, const std::string& path) { pruning(path); });
      const Answer answer = commands[i](live, saved.folder());
      if (!pruning.happened()) break;
      fs::rename(saved.at(2) + ".removed", saved.at(2));
      SCOPED_TRACE(fmt::format("command {}, call {}: {}", i, number, answer.text));
      EXPECT_EQ(answer.verdict, Verdict::yes);
      EXPECT_THAT(answer.text, Not(ContainsRegex("damaged|unreadable|missing|is no folder")));
      EXPECT_TRUE(i == 2 || answer.text.find(saved.at(1)) != std::string::npos);
      EXPECT_TRUE(i == 2 || answer.text.find(saved.at(3)) != std::string::npos);
      if (answer.text.find(": was removed meanwhile\n") != std::string::npos) ++told;
    }
    EXPECT_GT(told, 5) << i;
  }
}

// One that was asked for by its name is not verified; a link to nothing is not removed.
TEST(LiveCheckpoints, ARemovalOfTheOneIsNoSuccess) {
  const Saved saved(2);
  Pruning pruning(saved.at(2), 12);
  HookedDisk live([&](const std::string&, const std::string& path) { pruning(path); });
  const Answer answer = verify(live, saved.at(2));
  EXPECT_EQ(answer.verdict, Verdict::unknown);
  EXPECT_EQ(answer.text, saved.at(2) + ": was removed meanwhile\n");
  fs::create_directory_symlink("nowhere", saved.at(2));
  const Answer link = verify(disk(), saved.folder());
  EXPECT_EQ(link.verdict, Verdict::no);
  EXPECT_THAT(link.text, HasSubstr("damaged: " + saved.at(2) + ": is no folder"));
}

}  // namespace
}  // namespace zero::checkpoint_tool
