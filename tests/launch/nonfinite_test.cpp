// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Steps whose update is skipped, in runs that are cut and go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <limits>

#include "collectives/forwarding_backend.h"
#include "tests/launch/cut_run.h"
#include "weights/checkpoint_reader.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

/// On rank 1, gives NaN into one reduction, counted from 0.
class Poisoning final : public ForwardingBackend {
 public:
  Poisoning(const Communicator& inner, int call) : ForwardingBackend(inner), left_(call) {}
  ~Poisoning() override {
    if (rank() == 1) reductions = calls_;
  }

  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override {
    ++calls_;
    if (rank() == 1 && left_-- == 0) {
      stream.submit_host("poison", [view = full.of(0)] {
        view.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      });
    }
    ForwardingBackend::reduce_scatter(full, epilogue, workspace, stream, tag);
  }

  static inline std::atomic<int> reductions{0};  // of rank 1's last run

 private:
  int left_;
  int calls_ = 0;
};

Overrides skips(const Overrides& more) {
  Overrides all{"run.nonfinite=skip", "zero_optimization.stage=3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Two ranks whose reduction number `call` is poisoned; -1: none.
Started poisoned(int call, const Overrides& more = {}) {
  return {.world = 2, .overrides = skips(more), .wrap = [call](const Communicator& world) {
            return std::make_shared<Poisoning>(world, call);
          }};
}

int reductions_of_a_step() {
  const CutRun run;
  run.start(poisoned(-1, {"run.steps=1"}));
  return Poisoning::reductions;
}

std::vector<std::int64_t> skipped_steps(const CutRun& run) {
  std::vector<std::int64_t> steps;
  for (const Json& line : run.tiny().log()) {
    if (line.contains("skipped")) steps.push_back(line["step"]);
  }
  return steps;
}

TEST(Nonfinite, SkippedStepsCountAndAreNotSaved) {
  const CutRun whole;
  const Overrides every{"run.checkpoint.every_steps=1"};
  const Ended ended = whole.start(poisoned(40, every));
  EXPECT_EQ(ended.status, 0);
  const std::vector<std::int64_t> skipped = skipped_steps(whole);
  ASSERT_EQ(skipped.size(), 1U);
  const std::int64_t step = skipped[0];
  ASSERT_GT(step, 1);
  ASSERT_LT(step, 6);
  EXPECT_THAT(ended.out, HasSubstr("the update was skipped, 1 in a row"));
  EXPECT_THAT(whole.saved(), AllOf(::testing::SizeIs(5), Not(::testing::Contains(step))));
  const auto skipped_at = [&](std::int64_t of) {
    return CheckpointReader(files::disk(), checkpoint_path(whole.folder(), {.step = of}))
        .index()
        .steps_skipped;
  };
  EXPECT_EQ(skipped_at(step - 1), 0) << "committed behind the skipped step, and begun before";
  EXPECT_EQ(skipped_at(step + 1), 1);
  // Cut behind the skipped step, the run goes on with the count that Adam had.
  std::filesystem::remove_all(checkpoint_path(whole.folder(), {.step = 6}));
  const Json expected = whole.results();
  if (step < 5) std::filesystem::remove_all(checkpoint_path(whole.folder(), {.step = 5}));
  whole.start(poisoned(-1, every));
  EXPECT_EQ(whole.results(), expected);
}

TEST(Nonfinite, ARunThatEndsWithASkippedStepGoesOnFromThere) {
  const int a_step = reductions_of_a_step();
  const CutRun whole;
  whole.start(poisoned(2 * a_step));
  ASSERT_THAT(skipped_steps(whole), ElementsAre(3));
  {
    SCOPED_TRACE("run.stop_after, two good steps and the skipped one");
    const CutRun run;
    for (const int call : {-1, -1, 0}) {
      Started start = poisoned(call, {"run.stop_after=1"});
      start.started = kLongAgo;
      EXPECT_EQ(run.start(start).status, 0);
    }
    EXPECT_THAT(run.saved(), ElementsAre(3, 2, 1));
    run.start(poisoned(-1));
    EXPECT_EQ(run.results(), whole.results());
  }
  {
    SCOPED_TRACE("the last step");
    const CutRun run;
    const Ended ended = run.start(poisoned(2 * a_step, {"run.steps=3"}));
    EXPECT_THAT(ended.out, AllOf(HasSubstr("saved step 3 ("), Not(HasSubstr("warning"))));
    run.start(poisoned(-1));
    EXPECT_EQ(run.results(), whole.results());
  }
  {
    SCOPED_TRACE("SIGTERM");
    const CutRun first;
    first.start(poisoned(0));
    const CutRun run;
    Signals signals;
    signals.listen();
    signals.arrived(SIGTERM, std::chrono::steady_clock::now());
    Started start = poisoned(0);
    start.signals = &signals;
    EXPECT_EQ(run.start(start).status, 143);
    EXPECT_THAT(run.saved(), ElementsAre(1));
    run.start(poisoned(-1));
    EXPECT_EQ(run.results(), first.results());
  }
}

TEST(Nonfinite, AStepThatEndsTheRunDropsTheSaveInFlight) {
  const CutRun run;
  const Overrides stops{"run.nonfinite=stop", "run.checkpoint.every_steps=1"};
  EXPECT_THAT(run.refusal(poisoned(2 * reductions_of_a_step(), stops)), HasSubstr("step 3: "));
  EXPECT_THAT(run.saved(), ElementsAre(1));
}

TEST(Nonfinite, ASkippedLastStepReplacesNoCheckpoint) {
  const Overrides newest{"run.checkpoint.every_steps=1", "run.checkpoint.keep_last=1"};
  Overrides three = newest;
  three.emplace_back("run.steps=3");
  const CutRun run;
  EXPECT_EQ(run.start(poisoned(2 * reductions_of_a_step(), three)).status, 0);
  ASSERT_THAT(skipped_steps(run), ElementsAre(3));
  EXPECT_THAT(run.saved(), ElementsAre(3, 2));
  run.start(poisoned(-1, newest));
  EXPECT_THAT(run.saved(), ElementsAre(6)) << "a step that was not skipped";
}

TEST(Nonfinite, ASkippedLastStepNeedNotBeSaved) {
  const CutRun run;
  const std::string path = run.tiny().folder().write("file", "x") + "/ck";
  const Overrides one{"run.checkpoint.folder=" + path, "run.steps=1"};
  const std::string failure = path + "/step_00000001: was not saved: ";
  EXPECT_THAT(run.refusal(poisoned(-1, one)), HasSubstr(failure));
  const Ended last = run.start(poisoned(0, one));
  EXPECT_EQ(last.status, 0);
  EXPECT_THAT(last.out, HasSubstr("warning: " + failure));
  Signals signals;
  signals.listen();
  signals.arrived(SIGTERM, std::chrono::steady_clock::now());
  Started told = poisoned(0, {one[0]});
  told.signals = &signals;
  const Ended ended = run.start(told);
  EXPECT_EQ(ended.status, 143);
  EXPECT_THAT(ended.out, HasSubstr("warning: " + failure));
}

TEST(Nonfinite, TooManySkippedStepsEndTheRun) {
  const Overrides diverging{"optimizer.type=SGD", "optimizer.params.lr=1e6", "gradient_clipping=0",
                            "run.nonfinite=skip", "run.nonfinite_limit=3",   "run.steps=10"};
  const auto too_many =
      AllOf(HasSubstr("is NaN or infinite, first on rank "),
            HasSubstr("the update was skipped, 3 in a row, run.nonfinite_limit. Lower"));
  const CutRun run;
  EXPECT_THAT(run.refusal({.world = 2, .overrides = diverging}), too_many);
  EXPECT_THAT(run.saved(), IsEmpty());
  // A run that is cut among them has the count of one that is not, and knows its log by losses that
  // are no numbers.
  const CutRun cut;
  Overrides cuts = diverging;
  cuts.emplace_back("run.stop_after=1");
  const auto last = static_cast<int>(skipped_steps(run).back());
  for (int step = 1; step <= last; ++step) {
    EXPECT_EQ(cut.start({.world = 2, .overrides = cuts, .started = kLongAgo}).status, 0);
  }
  EXPECT_EQ(cut.tiny().log().back()["after_step"], last);
  EXPECT_THAT(cut.refusal({.world = 2, .overrides = cuts}), too_many);
  EXPECT_EQ(cut.results(), run.results());
}

}  // namespace
}  // namespace zero::testing
