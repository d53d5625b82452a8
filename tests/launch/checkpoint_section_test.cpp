// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/config_with.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kFolder = "run.checkpoint.folder=runs/a";

TEST(CheckpointSection, SavesNothingWithoutAFolder) {
  const TrainConfig config = config_with({});
  EXPECT_FALSE(config.checkpoints.used());
  EXPECT_EQ(config.checkpoints.resume, "never");
  EXPECT_EQ(config.values.at("run.resume").source, "no run.checkpoint.folder");
}

TEST(CheckpointSection, AFolderMeansToSaveAndToResume) {
  const TrainConfig::Checkpoints plain = config_with({kFolder}).checkpoints;
  EXPECT_EQ(plain.folder, "runs/a");
  EXPECT_EQ(plain.resume, "auto");
  EXPECT_EQ(plain.every_steps, 0);
  EXPECT_EQ(plain.every_seconds, 0);
  EXPECT_EQ(plain.keep_last, 0);
  EXPECT_EQ(plain.file_bytes, std::int64_t{4} << 30);
  EXPECT_TRUE(plain.required);
  EXPECT_EQ(plain.stop_after_seconds, 0);
  const TrainConfig::Checkpoints all =
      config_with({kFolder, "run.checkpoint.every_steps=50", "run.checkpoint.every_minutes=1.5",
                   "run.checkpoint.keep_last=3", "run.checkpoint.keep_every=1000",
                   "run.checkpoint.file_bytes=4096", "run.checkpoint.required=false",
                   "run.resume=never", "run.stop_after=90"})
          .checkpoints;
  EXPECT_EQ(all.every_steps, 50);
  EXPECT_EQ(all.every_seconds, 90);
  EXPECT_EQ(all.keep_last, 3);
  EXPECT_EQ(all.keep_every, 1000);
  EXPECT_EQ(all.file_bytes, 4096);
  EXPECT_FALSE(all.required);
  EXPECT_EQ(all.resume, "never");
  EXPECT_EQ(all.stop_after_seconds, 5400);
}

TEST(CheckpointSection, RefusesKeysThatWouldBeIgnored) {
  for (const char* given : {"run.checkpoint.every_steps=5", "run.checkpoint.every_minutes=5",
                            "run.checkpoint.keep_last=5", "run.checkpoint.file_bytes=50000",
                            "run.checkpoint.required=false", "run.stop_after=5"}) {
    const std::string key = std::string(given).substr(0, std::string(given).find('='));
    EXPECT_THAT(refusal_with({given}),
                HasSubstr(key + " is given without run.checkpoint.folder, so that nothing would "
                                "be saved; add run.checkpoint.folder, the folder to save into"));
    EXPECT_EQ(refusal_with({given, kFolder}), "no error");
    // Null turns saving off, but no time limit.
    EXPECT_EQ(refusal_with({given, "run.checkpoint.folder=null"}) == "no error",
              key != "run.stop_after");
  }
  EXPECT_THAT(refusal_with({kFolder, "run.checkpoint.keep_every=5"}),
              HasSubstr("keep_every is given, but run.checkpoint.keep_last is 0"));
  EXPECT_THAT(refusal_with({"run.resume=auto"}),
              HasSubstr("run.resume is \"auto\" without run.checkpoint.folder"));
  EXPECT_THAT(refusal_with({"run.resume_changes=run.seed"}),
              HasSubstr("run.resume_changes is given, but no checkpoint is resumed"));
  EXPECT_THAT(refusal_with({kFolder, "run.resume=never", "run.resume_changes=run.seed"}),
              HasSubstr("no checkpoint is resumed"));
  EXPECT_THAT(refusal_with({"run.checkpoint.every_step=5"}),
              HasSubstr("did you mean \"run.checkpoint.every_steps\"?"));
}

TEST(CheckpointSection, ChangesNameKeysThatCheckpointsAreHeldTo) {
  EXPECT_THAT(config_with({kFolder, R"(run.resume_changes=["run.seed","optimizer.params.lr"])"})
                  .checkpoints.resume_changes,
              ElementsAre("run.seed", "optimizer.params.lr"));
  EXPECT_THAT(refusal_with({kFolder, "run.resume_changes=run.threads"}),
              AllOf(HasSubstr("\"run.threads\" is no key that a checkpoint is held to"),
                    HasSubstr("optimizer.params.lr")));
}

TEST(CheckpointSection, APathResumesWithoutSaving) {
  const TrainConfig config = config_with({"run.resume=runs/b/step_00000003"});
  EXPECT_TRUE(config.checkpoints.used());
  EXPECT_EQ(config.checkpoints.resume, "runs/b/step_00000003");
}

TEST(CheckpointSection, TimesAreMinutesOrAClock) {
  const auto seconds = [](const std::string& text) {
    return config_with({kFolder, "run.stop_after=" + text}).checkpoints.stop_after_seconds;
  };
  EXPECT_EQ(seconds("1.5"), 90);
  EXPECT_EQ(seconds("01:30:05"), 5405);
  EXPECT_EQ(seconds("0:00:01"), 1);
  EXPECT_EQ(seconds("1000:00:00"), 3600000);
  for (const char* text :
       {"0", "-1", "true", "1h", "01:30", "00:00:00", "1:60:00", "1:00:60", ":00:01", "x:00:01",
        "1:0x:01", "1:00:01x", "10000:00:00", "1e12", "\"90\""}) {
    EXPECT_THAT(refusal_with({kFolder, std::string("run.stop_after=") + text}),
                HasSubstr("expected minutes as a number above 0, or a text \"HH:MM:SS\""))
        << text;
  }
}

TEST(RunSection, NonfiniteStepsStopOrAreSkipped) {
  EXPECT_EQ(config_with({}).run.nonfinite, TrainConfig::Nonfinite::stop);
  const TrainConfig skips = config_with({"run.nonfinite=skip", "run.nonfinite_limit=4"});
  EXPECT_EQ(skips.run.nonfinite, TrainConfig::Nonfinite::skip);
  EXPECT_EQ(skips.run.nonfinite_limit, 4);
  EXPECT_EQ(config_with({"run.nonfinite=skip"}).run.nonfinite_limit, 10);
  EXPECT_THAT(refusal_with({"run.nonfinite_limit=4"}),
              HasSubstr("run.nonfinite_limit is given, but run.nonfinite is \"stop\""));
  EXPECT_THAT(refusal_with({"run.nonfinite=ignore"}), HasSubstr("one of \"stop\", \"skip\""));
  EXPECT_THAT(refusal_with({"run.nonfinite=skip", "run.nonfinite_limit=0"}),
              HasSubstr("a whole number from 1"));
}

}  // namespace
}  // namespace zero::testing
