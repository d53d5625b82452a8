// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Where runs that go on are in their data, and whether those are the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/launch/cut_run.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Replaces training tokens that no fingerprint looks at, which a run begins with.
void replace_inner_tokens(const CutRun& run) {
  std::vector<std::uint32_t> tokens(100000, 5);
  write_tokens(run.tiny().folder(), "train_000000.bin", tokens);
  const std::string before = TokenFile(run.tiny().folder().path("train_000000.bin")).path();
  run.start({.overrides = {"run.steps=2"}});
  const std::uint64_t fingerprint = TokenFile(before).fingerprint();
  std::fill(tokens.begin() + 10000, tokens.begin() + 40000, 6);
  write_tokens(run.tiny().folder(), "train_000000.bin", tokens);
  ASSERT_EQ(TokenFile(before).fingerprint(), fingerprint);
}

TEST(Resume, OtherDataAreFoundWhereverTheyDiffer) {
  const CutRun run;
  replace_inner_tokens(run);
  const auto named = AllOf(HasSubstr("data.train: " + run.tiny().folder().path("train_000000.bin") +
                                     " has other tokens than the checkpoint's run had: digest "),
                           HasSubstr("name data.train in run.resume_changes"));
  EXPECT_THAT(run.refusal({.world = 2}), named);
  EXPECT_EQ(run.saved(), std::vector<std::int64_t>{2});
  // Without a digest beside it the file is read in the background.
  std::filesystem::remove(run.tiny().folder().path("train_000000.bin.digest"));
  EXPECT_THAT(run.refusal({.world = 2, .overrides = {"run.steps=3"}}), named);
  EXPECT_EQ(run.saved(), std::vector<std::int64_t>{2});
  EXPECT_EQ(run.refusal({.overrides = {"run.resume_changes=data.train"}}), "no error");
}

TEST(Resume, DigestsReadInTheBackgroundAreKeptInTheCheckpoint) {
  const CutRun run;
  const std::string digest =
      TokenFile(run.tiny().folder().path("train_000001.bin")).digest()->text();
  std::filesystem::remove(run.tiny().folder().path("train_000001.bin.digest"));
  run.start({.world = 2});
  const auto extra =
      CheckpointReader(files::disk(), checkpoint_path(run.folder(), {.step = 6})).index().extra;
  EXPECT_EQ(extra.at("data").at("digests").at(1), digest);
}

/// The first loss behind a checkpoint of 6 steps of 8 sequences: of a step over `values`, with
/// every training token outside [begin, end) of the stream replaced.
double loss_behind_six_steps(const Overrides& values, std::size_t begin, std::size_t end,
                             const std::function<void(const CutRun&)>& change = {}) {
  const CutRun run;
  run.start({.overrides = {"train_batch_size=8"}});
  if (change) change(run);
  std::vector<std::uint32_t> tokens;
  for (const char* name : {"train_000000.bin", "train_000001.bin"}) {
    const TokenFile file(run.tiny().folder().path(name));
    for (std::int64_t i = 0; i < file.count(); ++i) tokens.push_back(file.at(i));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i < begin || i >= end) tokens[i] = 3;
  }
  const auto split = tokens.begin() + 1500;
  write_tokens(run.tiny().folder(), "train_000000.bin", {tokens.begin(), split});
  write_tokens(run.tiny().folder(), "train_000001.bin", {split, tokens.end()});
  Overrides all{
      "run.steps=7",
      "run.resume_changes=[\"data.train\",\"train_batch_size\",\"data.sequence_length\"]"};
  all.insert(all.end(), values.begin(), values.end());
  run.start({.overrides = all});
  double loss = 0;
  for (const nlohmann::json& line : run.tiny().log()) {
    if (line.value("step", 0) == 7) loss = line.at("loss");
  }
  return loss;
}

TEST(Resume, AnotherBatchGoesOnBehindTheSequencesThatWereRead) {
  // 6 steps of 8, then 16: the next step reads sequences 48 to 63, of 16 tokens and their targets.
  const double loss = loss_behind_six_steps({}, 0, 2600);
  EXPECT_EQ(loss_behind_six_steps({}, 48 * 16, 64 * 16 + 1), loss);
  EXPECT_NE(loss_behind_six_steps({}, 48 * 16 + 1, 64 * 16 + 1), loss);
  const auto old_checkpoint = [](const CutRun& run) {
    run.rewrite(6, [](nlohmann::ordered_json& extra) { extra.erase("data"); });
  };
  EXPECT_EQ(loss_behind_six_steps({}, 48 * 16, 64 * 16 + 1, old_checkpoint), loss);
}

TEST(Resume, AnotherSequenceLengthGoesOnBehindTheTokensThatWereRead) {
  // 768 tokens are read; the first whole sequence of 20 behind them is the 39th.
  const Overrides twenty{"data.sequence_length=20", "train_batch_size=8"};
  const double loss = loss_behind_six_steps(twenty, 0, 2600);
  EXPECT_EQ(loss_behind_six_steps(twenty, 39 * 20, 47 * 20 + 1), loss);
  EXPECT_NE(loss_behind_six_steps(twenty, 39 * 20 + 1, 47 * 20 + 1), loss);
}

TEST(Resume, SeveralChangesOfTheBatchReadEverySequenceOnce) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2", "train_batch_size=8"}});
  const std::string changes = "run.resume_changes=[\"train_batch_size\"]";
  EXPECT_THAT(run.start({.overrides = {"run.steps=3", changes}}).out,
              HasSubstr("the next step reads sequences 16 to 31 of 162 in epoch 0"));
  EXPECT_THAT(run.start({.overrides = {"run.steps=5", "train_batch_size=4", changes}}).out,
              HasSubstr("the next step reads sequences 32 to 35 of 162 in epoch 0"));
  EXPECT_THAT(run.start({.overrides = {"run.steps=6", "train_batch_size=4"}}).out,
              Not(HasSubstr("the next step reads")));
  // From an earlier checkpoint again.
  EXPECT_THAT(run.start({.overrides = {"run.steps=4", changes, "run.checkpoint.folder=null",
                                       "run.log=" + run.tiny().folder().path("other.log"),
                                       "run.resume=" + checkpoint_path(run.folder(), {.step = 3}),
                                       "train_batch_size=2"}})
                  .out,
              HasSubstr("the next step reads sequences 32 to 33 of 162 in epoch 0"));
  const auto extra =
      CheckpointReader(files::disk(), checkpoint_path(run.folder(), {.step = 6})).index().extra;
  EXPECT_EQ(extra.at("tokens"), (2 * 8 + 16 + 3 * 4) * 16);
  EXPECT_EQ(extra.at("data").at("sequences"), 2 * 8 + 16 + 3 * 4);
  EXPECT_THAT(run.start({.overrides = {"run.steps=7", "data.shuffle=true", "train_batch_size=4",
                                       "run.resume_changes=[\"data.shuffle\"]"}})
                  .out,
              AllOf(HasSubstr("epoch 0 ends after 44 of its 162 sequences, because another"),
                    HasSubstr("the next step reads the shuffled sequences 0 to 3 of 162 in epoch "
                              "1")));
}

}  // namespace
}  // namespace zero::testing
