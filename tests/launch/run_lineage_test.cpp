// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Whose checkpoints and whose log are a run's: other runs in the same folder keep theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/launch/cut_run.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const Overrides kRate{"optimizer.params.lr=0.005"};
const Overrides kOtherRate{"optimizer.params.lr=0.005", "run.resume_changes=optimizer.params.lr"};

TEST(RunLineage, ALogOfAnotherRunIsNotCut) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  const std::string other = "{\"step\":1,\"loss\":5.25}\n{\"step\":2,\"loss\":5.0}\n";
  run.tiny().folder().write("run.log", other);
  EXPECT_THAT(run.refusal({.world = 2}),
              HasSubstr("run.log is not the log of the checkpoint's run: \"run\" of its first line "
                        "is missing, expected \""));
  EXPECT_EQ(run.tiny().folder().read("run.log"), other);
  run.tiny().folder().write("run.log", "");
  EXPECT_THAT(run.start({}).out, HasSubstr("ends at step 0, the checkpoint is of step 2"));
  EXPECT_EQ(run.tiny().log()[1]["step"], 3);
  run.tiny().folder().write("run.log", "{\"resumed_aft");
  EXPECT_THAT(run.start({.overrides = {"run.steps=8"}}).out,
              HasSubstr("run.log is no JSON; the log is kept as "));
  EXPECT_EQ(run.tiny().log()[1]["step"], 7);
}

TEST(RunLineage, AFreshRunKeepsTheLogOfAnotherOne) {
  const CutRun run;
  run.tiny().folder().write("run.log", "a\nb\n");
  // Weights that cannot be loaded: no run begins.
  const std::string bad = "run.init=" + run.tiny().folder().write("bad.safetensors", "x");
  EXPECT_THAT(run.refusal({.world = 2, .overrides = {bad}}), HasSubstr("bad.safetensors"));
  EXPECT_EQ(run.tiny().folder().read("run.log"), "a\nb\n");
  EXPECT_THAT(run.start({}).out, AllOf(HasSubstr("run.log begins anew; the log of an earlier run "
                                                 "is kept as "),
                                       HasSubstr("run.log.1")));
  EXPECT_EQ(run.tiny().folder().read("run.log.1"), "a\nb\n");
  EXPECT_EQ(run.tiny().log().front()["step"], 1);
}

// Losses of a first step do not depend on the learning rate.
TEST(RunLineage, AShorterLogOfAnotherRunIsNotGoneOnWith) {
  const CutRun other;
  other.start({.overrides = plus(kRate, {"run.steps=1"})});
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  ASSERT_EQ(run.tiny().log()[0]["loss"], other.tiny().log()[0]["loss"]);
  const std::string mine = run.tiny().log()[0]["run"];
  const std::string theirs = other.tiny().log()[0]["run"];
  EXPECT_NE(mine, theirs);
  const std::string text = other.tiny().folder().read("run.log");
  run.tiny().folder().write("run.log", text);
  EXPECT_THAT(run.refusal({.world = 2}),
              HasSubstr("\"run\" of its first line is \"" + theirs + "\", expected \"" + mine +
                        "\"; move the file away"));
  EXPECT_EQ(run.tiny().folder().read("run.log"), text);
}

TEST(RunLineage, OtherInitialWeightsMakeAnotherRun) {
  const CutRun source;
  source.start({.overrides = {"run.steps=1"}});
  const std::string weights = checkpoint_path(source.folder(), {.step = 1}) + "/weights";
  const std::string copy = source.tiny().folder().path("copy");
  std::filesystem::copy(weights, copy, std::filesystem::copy_options::recursive);
  const CutRun run;
  std::set<std::string> marks;
  for (const Overrides& init : {Overrides{}, {"run.init=" + weights}, {"run.init=" + copy}}) {
    run.start({.overrides = plus(init, {"run.steps=2", "run.checkpoint.folder=null"})});
    marks.insert(run.tiny().log()[0]["run"]);
  }
  EXPECT_EQ(marks.size(), 3U);
  run.start({.overrides = {"run.steps=2", "run.init=" + weights}});
  EXPECT_EQ(run.start({}).status, 0) << "whatever the start that goes on would begin with";
}

TEST(RunLineage, ALogThatBeganAnewIsGoneOnWith) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  const std::string mine = run.tiny().log()[0]["run"];
  run.tiny().folder().write("run.log", "");
  run.start({.overrides = {"run.steps=3"}});
  EXPECT_EQ(run.tiny().log()[0]["run"], mine);
  EXPECT_EQ(run.start({.overrides = {"run.steps=4"}}).status, 0);
  // Nor does a change that was named make another log of it.
  run.start({.overrides = plus(kOtherRate, {"run.steps=5"})});
  run.start({.overrides = kRate});
  EXPECT_EQ(run.tiny().log().back()["final"], true);
}

TEST(RunLineage, AForkHasALogOfItsOwn) {
  const CutRun run;
  run.start({.overrides = {"run.steps=4", "run.checkpoint.every_steps=2"}});
  const std::string log = run.tiny().folder().read("run.log");
  std::filesystem::create_directory(run.tiny().folder().path("other"));
  const Overrides fork = plus(
      kOtherRate, {"run.resume=" + checkpoint_path(run.folder(), {.step = 2}),
                   "run.checkpoint.folder=" + run.tiny().folder().path("other"), "run.steps=3"});
  EXPECT_THAT(run.start({.overrides = fork}).out,
              AllOf(HasSubstr("run.log begins anew; the log of an earlier run is kept as "),
                    HasSubstr("run.log.1")));
  EXPECT_EQ(run.tiny().folder().read("run.log.1"), log);
  const Json first = run.tiny().log().front();
  EXPECT_EQ(first["resumed_after_step"], 2);
  EXPECT_EQ(run.tiny().log()[1]["step"], 3);
  // Each goes on with its own log alone, whatever it is called.
  const Overrides own{kRate[0], "run.checkpoint.folder=" + run.tiny().folder().path("other"),
                      "run.steps=4"};
  EXPECT_EQ(run.start({.overrides = own}).status, 0);
  EXPECT_EQ(run.tiny().log().front(), first);
  EXPECT_THAT(run.refusal({.world = 2, .overrides = {"run.steps=5"}}),
              HasSubstr("run.log is not the log of the checkpoint's run"));
  run.tiny().folder().write("run.log", log);
  EXPECT_THAT(run.refusal({.world = 2, .overrides = own}),
              HasSubstr("run.log is not the log of the checkpoint's run"));
  EXPECT_EQ(run.start({.overrides = {"run.steps=5"}}).status, 0);
}

TEST(RunLineage, ARunRemovesItsOwnCheckpointsAlone) {
  const Overrides all{"run.steps=3", "run.checkpoint.every_steps=1"};
  const Overrides newest{"run.checkpoint.every_steps=1", "run.checkpoint.keep_last=1"};
  const CutRun changed;
  changed.start({.overrides = all});
  changed.start({.overrides = plus(newest, kOtherRate)});
  EXPECT_THAT(changed.saved(), ElementsAre(6, 3, 2, 1));
  changed.start({.overrides = plus(plus(newest, kRate), {"run.steps=7"})});
  EXPECT_THAT(changed.saved(), ElementsAre(7, 3, 2, 1)) << "a later start of the same run";
  const CutRun named;
  named.start({.overrides = all});
  const std::string path = "run.resume=" + checkpoint_path(named.folder(), {.step = 3});
  EXPECT_THAT(named.start({.overrides = plus(newest, {path})}).out, Not(HasSubstr("note: ")));
  EXPECT_THAT(named.saved(), ElementsAre(6, 3, 2, 1));
  named.start({.overrides = plus(newest, {"run.steps=7"})});
  EXPECT_THAT(named.saved(), ElementsAre(7)) << "the newest one, of the same run";
}

TEST(RunLineage, ACheckpointWhoseValuesAreOfAnotherStepIsRefused) {
  const CutRun run;
  run.start({.overrides = {"run.steps=2"}});
  const std::string folder = checkpoint_path(run.folder(), {.step = 2});
  const auto rewrite = [&](const Json& step, const char* without = "") {
    run.rewrite(2, [&](nlohmann::ordered_json& values) {
      values["step"] = step;
      values.erase(without);
    });
  };
  rewrite(1);
  EXPECT_THAT(run.refusal({.world = 2}),
              HasSubstr(folder + ": its index is of step 2, and the trainer's values in it are of "
                                 "step 1, expected the same"));
  rewrite(9223372036854775809U);
  EXPECT_THAT(run.refusal({.world = 2}),
              HasSubstr("step: found 9223372036854775809, expected a whole number from 0 to"));
  for (const char* name : {"configuration", "log", "versions"}) {
    run.rewrite(2, [&](nlohmann::ordered_json& values) {
      values["step"] = 2;
      values[name] = 5;
    });
    EXPECT_THAT(run.refusal({.world = 2}),
                HasSubstr(fmt::format("{}/index.json: the checkpoint's values: {}: found 5, "
                                      "expected an object, which a resume needs",
                                      folder, name)));
    std::filesystem::remove_all(run.folder());
    run.start({.overrides = {"run.steps=2"}});
  }
  rewrite(2, "skipped_in_row");
  EXPECT_THAT(
      run.refusal({.world = 2}),
      HasSubstr("the checkpoint's values: skipped_in_row is missing; expected a whole number "
                "from 0, which a resume needs: another program or version wrote them"));
}

}  // namespace
}  // namespace zero::testing
