// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Runs that end early and go on, with ranks as threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/errors.h"
#include "tests/launch/cut_run.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json uncut(const Overrides& overrides, int world = 1) {
  const CutRun run;
  run.start({.world = world, .overrides = overrides});
  return run.results();
}

TEST(Resume, AStepAProcessGivesTheBitsOfOneProcess) {
  const Overrides common{"run.validation_every=2", "scheduler.type=cosine",
                         "scheduler.params.warmup_num_steps=2", "data.shuffle=true"};
  for (const char* dtype : {"bf16.enabled=false", "bf16.enabled=true", "fp16.enabled=true"}) {
    Overrides values = common;
    values.emplace_back(dtype);
    const Json expected = uncut(values);
    ASSERT_EQ(expected.size(), 6 * 5 + 3 + 2U);
    const CutRun run;
    // Every start finds its time over after a step; worlds, stages and meshes change.
    std::vector<std::pair<int, Overrides>> starts{
        {8, {"zero_optimization.stage=3"}},
        {4, {"zero_optimization.stage=1"}},
        {1, {"zero_optimization.stage=2"}},
        {4, {"mesh.replicate=2", "zero_optimization.stage=3"}},
        {2, {"zero_optimization.stage=0"}}};
    std::int64_t step = 0;
    for (auto& [world, overrides] : starts) {
      overrides.insert(overrides.end(), values.begin(), values.end());
      overrides.emplace_back("run.stop_after=1");
      const Ended ended = run.start({.world = world, .overrides = overrides, .started = kLongAgo});
      EXPECT_EQ(ended.status, 0);
      ++step;
      EXPECT_THAT(ended.out, HasSubstr(fmt::format("ended by run.stop_after after step {} of 6; "
                                                   "the newest checkpoint is of step {}",
                                                   step, step)));
      if (step > 1) {
        EXPECT_THAT(ended.out, HasSubstr(fmt::format(
                                   "resumed from {}: {} of 6 steps are done",
                                   checkpoint_path(run.folder(), {.step = step - 1}), step - 1)));
      }
    }
    const Ended last = run.start({.world = 8, .overrides = values});
    EXPECT_EQ(last.status, 0);
    EXPECT_THAT(last.out, AllOf(HasSubstr("as planned, to the byte"), HasSubstr("saved step 6 (")));
    EXPECT_EQ(run.results(), expected) << dtype;
    EXPECT_EQ(run.saved(), (std::vector<std::int64_t>{6, 5, 4, 3, 2, 1}));
  }
}

TEST(Resume, OtherOptimizersGoOnToo) {
  for (const Overrides& optimizer :
       {Overrides{"optimizer.type=Adam", "gradient_clipping=0"},
        Overrides{"optimizer.type=SGD", "optimizer.params.momentum=0.9", "reduction=boundary",
                  "zero_optimization.stage=1"}}) {
    const Json expected = uncut(optimizer, 2);
    const CutRun run;
    Overrides half = optimizer;
    half.emplace_back("run.steps=3");
    run.start({.world = 2, .overrides = half});
    run.start({.world = 2, .overrides = optimizer});
    EXPECT_EQ(run.results(), expected) << optimizer[0];
  }
}

TEST(Resume, SmallMomentsGoOnAtAnotherStageAndWorld) {
  const Json in_fp32 = uncut({});
  for (const char* moments : {"8bit", "bf16"}) {
    const Overrides values{fmt::format("optimizer.params.moments={}", moments)};
    const Json expected = uncut(values);
    EXPECT_NE(expected, in_fp32);
    const CutRun run;
    int steps = 0;
    for (const auto& [world, stage] : {std::pair(2, 3), {4, 1}, {1, 0}}) {
      Overrides part = values;
      part.push_back(fmt::format("zero_optimization.stage={}", stage));
      part.push_back(fmt::format("run.steps={}", steps += 2));
      EXPECT_EQ(run.start({.world = world, .overrides = part}).status, 0);
    }
    EXPECT_EQ(run.results(), expected) << moments;
  }
}

TEST(Resume, MomentsChangeTheirFormatOnlyIfTheKeyIsNamed) {
  const std::string key = "optimizer.params.moments";
  for (const auto& [was, is] : {std::pair("fp32", "8bit"), {"8bit", "fp32"}}) {
    const CutRun run;
    const auto start = [&](int world, const Overrides& more) {
      Overrides values{"run.steps=3"};
      values.insert(values.end(), more.begin(), more.end());
      return run.start({.world = world, .overrides = values});
    };
    const auto hash = [&] { return run.tiny().log().back().at("state_hash"); };
    start(2, {fmt::format("{}={}", key, was)});
    const Json saved = hash();
    const Overrides other{fmt::format("{}={}", key, is)};
    EXPECT_THAT(error_of([&] { start(1, other); }),
                HasSubstr(fmt::format("{} is \"{}\" in the checkpoint and \"{}\" in this run", key,
                                      was, is)));
    const Overrides named{other[0], "run.resume_changes=" + key};
    // The finished run loads its states, and prints their hash: that of the logical values.
    EXPECT_EQ(start(1, named).status, 0);
    const Json loaded = hash();
    EXPECT_EQ(loaded == saved, std::string(is) == "fp32") << "codes lose bits; what they decode to "
                                                             "is loaded bit for bit";
    EXPECT_EQ(start(4, {named[0], named[1], "zero_optimization.stage=1"}).status, 0);
    EXPECT_EQ(hash(), loaded);
    EXPECT_EQ(start(2, {named[0], named[1], "run.steps=5"}).status, 0);
    EXPECT_NE(hash(), loaded) << "trains on";
  }
}

TEST(Resume, SavesAreDueBySteps) {
  const CutRun run;
  const Ended ended = run.start({.world = 2, .overrides = {"run.checkpoint.every_steps=4"}});
  EXPECT_EQ(run.saved(), (std::vector<std::int64_t>{6, 4}));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("checkpoints go to "), HasSubstr("saved step 4 (")));
  std::vector<Json> saves;
  for (const Json& line : run.tiny().log()) {
    if (line.contains("saved_step")) saves.push_back(line);
  }
  ASSERT_EQ(saves.size(), 2U);
  EXPECT_EQ(saves[0]["saved_step"], 4);
  EXPECT_GT(saves[0]["bytes"], 100000);
  EXPECT_GT(saves[0]["seconds"], 0.0);
  EXPECT_GE(saves[0]["exposed_seconds"], 0.0);
  EXPECT_EQ(run.tiny().log().back()["plan_exact"], true);
}

TEST(Resume, OldCheckpointsAreRemovedAsAsked) {
  const CutRun run;
  run.start({.overrides = {"run.checkpoint.every_steps=1", "run.checkpoint.keep_last=2",
                           "run.checkpoint.keep_every=3"}});
  EXPECT_EQ(run.saved(), (std::vector<std::int64_t>{6, 5, 3}));
}

TEST(Resume, ASignalEndsTheRunAfterTheStep) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const CutRun run;
    Signals signals;
    signals.listen();
    signals.arrived(signal, std::chrono::steady_clock::now());
    const Ended ended =
        run.start({.world = 3, .overrides = {"train_batch_size=12"}, .signals = &signals});
    EXPECT_EQ(ended.status, 128 + signal);
    EXPECT_THAT(ended.out, HasSubstr(signal == SIGINT ? "ended by SIGINT after step 1 of 6"
                                                      : "ended by SIGTERM after step 1 of 6"));
    EXPECT_EQ(run.saved(), (std::vector<std::int64_t>{1}));
    EXPECT_FALSE(run.tiny().log().back().contains("final"));
    EXPECT_TRUE(signals.arrived(SIGTERM, std::chrono::steady_clock::now()).ends_process);
  }
}

TEST(Resume, InitialWeightsBesideACheckpointAreNotUsed) {
  const CutRun run;
  EXPECT_THAT(run.start({.overrides = {"run.steps=2"}}).out,
              Not(HasSubstr("no checkpoint of the last step")));
  const std::string weights = checkpoint_path(run.folder(), {.step = 2}) + "/weights";
  EXPECT_THAT(run.start({.overrides = {"run.steps=3", "run.init=" + weights}}).out,
              HasSubstr("weights, is not used: the weights are the checkpoint's"));
}

TEST(Resume, AFinishedRunSaysSoAndEndsAlike) {
  const CutRun run;
  run.start({.world = 2});
  const Json expected = run.results();
  RunProgress progress;
  const Ended again = run.start({.world = 1, .progress = &progress});
  EXPECT_EQ(again.status, 0);
  EXPECT_THAT(progress.kept(), HasSubstr("step_00000006, holds every step done"));
  EXPECT_THAT(again.out, AllOf(HasSubstr("the run is finished; to train on, raise run.steps"),
                               HasSubstr("as planned, to the byte"), Not(HasSubstr("saved step"))));
  EXPECT_EQ(run.results(), expected);
  EXPECT_THAT(run.refusal({.overrides = {"run.steps=4"}}),
              HasSubstr("the checkpoint is of step 6, and run.steps is 4: raise run.steps"));
}

TEST(Resume, AnotherRunIsRefusedUnlessTheChangeIsNamed) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  const std::string log = run.tiny().folder().read("run.log");
  EXPECT_THAT(run.refusal({.world = 2, .overrides = {"optimizer.params.lr=0.5", "run.seed=8"}}),
              AllOf(HasSubstr("optimizer.params.lr is 0.01 in the checkpoint and 0.5 in this run"),
                    HasSubstr("run.seed is 7 in the checkpoint and 8 in this run")));
  EXPECT_EQ(run.tiny().folder().read("run.log"), log);
  const Ended changed = run.start(
      {.overrides = {"optimizer.params.lr=0.5", "run.resume_changes=optimizer.params.lr"}});
  EXPECT_THAT(changed.out, HasSubstr("run.resume_changes: optimizer.params.lr is 0.01 in the "
                                     "checkpoint and 0.5 in this run"));
  EXPECT_THAT(run.refusal({.overrides = {"model.layers=1", "run.resume_changes=model.layers",
                                         "optimizer.params.lr=0.5"}}),
              HasSubstr("h.1."));
}

TEST(Resume, ARunTrainsOnForMoreStepsThanItsScheduleHad) {
  const Overrides cosine{"scheduler.type=cosine", "scheduler.params.warmup_num_steps=1"};
  const auto with = [&](const std::string& more) {
    Overrides all = cosine;
    all.push_back(more);
    return all;
  };
  const CutRun run;
  run.start({.overrides = with("run.steps=3")});
  const Ended longer = run.start({.overrides = with("run.steps=5")});
  EXPECT_THAT(longer.out, HasSubstr("learning rates from here on are of a schedule for the new "
                                    "run.steps: scheduler.params.total_num_steps is 3 in the "
                                    "checkpoint and 5 in this run"));
  EXPECT_EQ(run.tiny().log().back()["final"], true);
  EXPECT_THAT(run.refusal({.overrides = with("scheduler.params.total_num_steps=9")}),
              HasSubstr("scheduler.params.total_num_steps is 5 in the checkpoint and 9"));
}

TEST(Resume, OtherDataAreRefused) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  write_tokens(run.tiny().folder(), "train_000001.bin", std::vector<std::uint32_t>(1100, 3));
  EXPECT_THAT(run.refusal({}), AllOf(HasSubstr("data.train is [\"1500 tokens, fingerprint "),
                                     HasSubstr("in the checkpoint and")));
}

TEST(Resume, TheNewestGoodCheckpointIsTaken) {
  const CutRun run;
  run.start({.overrides = {"run.steps=4", "run.checkpoint.every_steps=1"}});
  const auto damage = [&](int step, const std::string& file) {
    const std::string path = checkpoint_path(run.folder(), {.step = step}) + "/" + file;
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-1, std::ios::end);
    stream.put('x');
  };
  damage(4, "weights/model.safetensors");
  damage(3, "COMMIT");
  const Ended ended = run.start({.world = 2});
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("warning: passed over a checkpoint: "), HasSubstr("step_00000004"),
                    HasSubstr("resumed from " + checkpoint_path(run.folder(), {.step = 2})),
                    HasSubstr("run.log: the 7 lines behind step 2 are cut off"),
                    HasSubstr("as planned, to the byte")));
  EXPECT_EQ(run.results(), uncut({}));
}

TEST(Resume, APathIsTakenAsItIs) {
  const CutRun run;
  run.start({.overrides = {"run.steps=4", "run.checkpoint.every_steps=2"}});
  const std::string two = "run.resume=" + checkpoint_path(run.folder(), {.step = 2});
  EXPECT_THAT(run.refusal({.overrides = {two}}),
              AllOf(HasSubstr("but run.checkpoint.folder holds "), HasSubstr("step_00000004"),
                    HasSubstr("give another folder")));
  const std::string other = "run.checkpoint.folder=" + run.tiny().folder().path("other");
  EXPECT_EQ(run.start({.overrides = {two, other}}).status, 0);
  const nlohmann::json forked = run.results();
  const nlohmann::json whole = uncut({});
  // Its log has the steps from the checkpoint on.
  const std::size_t before = whole.size() - forked.size();
  EXPECT_EQ(forked.front(), nlohmann::json({"step", 3}));
  EXPECT_TRUE(std::equal(forked.begin(), forked.end(), whole.begin() + std::ptrdiff_t(before)));
  const std::string six =
      "run.resume=" + checkpoint_path(run.tiny().folder().path("other"), {.step = 6});
  for (const char* end : {"", "/"}) {
    EXPECT_EQ(run.start({.overrides = {six + end, other}}).status, 0) << "of its own folder" << end;
    EXPECT_EQ(run.tiny().log()[0]["resumed_after_step"], 2) << "its own log goes on";
  }
  EXPECT_EQ(run.results(), forked);
  EXPECT_EQ(run.start({.overrides = {two, "run.checkpoint.folder=null"}}).status, 0);
  EXPECT_EQ(run.results(), forked);
  EXPECT_THAT(
      run.refusal({.world = 2, .overrides = {"run.resume=" + run.tiny().folder().path(), other}}),
      HasSubstr("found no checkpoint"));
}

TEST(Resume, AFreshStartBesideAnOlderRunIsRefused) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  EXPECT_THAT(run.refusal({.world = 2, .overrides = {"run.resume=never"}}),
              AllOf(HasSubstr("run.resume is \"never\", but run.checkpoint.folder holds "),
                    HasSubstr("step_00000002, from which a later start would go on")));
}

TEST(Resume, ASaveThatFailsEndsTheRunIfItIsRequired) {
  const CutRun run;
  const std::string path = run.tiny().folder().write("file", "x") + "/ck";
  const std::string folder = "run.checkpoint.folder=" + path;
  EXPECT_THAT(run.refusal({.world = 2, .overrides = {folder, "run.checkpoint.every_steps=1"}}),
              AllOf(HasSubstr(path + "/step_00000001: was not saved: "),
                    HasSubstr("there is no checkpoint yet"),
                    HasSubstr("or set run.checkpoint.required to false")));
  const Ended ended = run.start(
      {.world = 2,
       .overrides = {folder, "run.checkpoint.every_steps=3", "run.checkpoint.required=false"}});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("warning: " + path + "/step_00000003: was not saved: "),
                               HasSubstr("warning: " + path + "/step_00000006: was not saved: "),
                               HasSubstr("warning: no checkpoint of the last step, 6, exists; "
                                         "there is no checkpoint yet")));
  EXPECT_EQ(run.results(), uncut({}));
  const Ended cut =
      run.start({.overrides = {folder, "run.checkpoint.required=false", "run.stop_after=1"},
                 .started = kLongAgo});
  EXPECT_THAT(cut.out, HasSubstr("after step 1 of 6; there is no checkpoint yet: started again, "
                                 "the run begins anew"));
}

TEST(Resume, AnotherTensorDegreeIsSaid) {
  const CutRun run;
  run.start({.world = 2, .overrides = {"run.steps=2", "mesh.tensor=2"}});
  EXPECT_THAT(run.start({.overrides = {"run.steps=3"}}).out,
              HasSubstr("mesh.tensor was 2 before, and is 1: the states are the same bit for bit"));
  EXPECT_THAT(run.start({.world = 2}).out, Not(HasSubstr("mesh.tensor was")));
}

TEST(Resume, AnotherMicroBatchIsSaid) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  EXPECT_THAT(run.start({.world = 2, .overrides = {"run.steps=3"}}).out,
              Not(HasSubstr("round differently")));
  EXPECT_THAT(run.start({.overrides = {"run.steps=4", "train_micro_batch_size_per_gpu=1"}}).out,
              HasSubstr("the steps from here on round differently: micro-batch 1, was 2; set "
                        "train_micro_batch_size_per_gpu to 2 to keep the bits"));
}

}  // namespace
}  // namespace zero::testing
