// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/nonfinite_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "base/host.h"
#include "collectives/forwarding_backend.h"
#include "launch/data/token_file.h"
#include "tests/launch/cut_run.h"

namespace zero::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// Rank 1 gives a NaN and an infinity into its first reduction.
class Poisoning final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void reduce_scatter(const Slices& full, const ReduceEpilogue& epilogue, View workspace,
                      Stream& stream, const Tag& tag) override {
    if (rank() == 1 && !done_) {
      done_ = true;
      stream.submit_host("poison", [view = full.of(0)] {
        view.as<float>()[1] = std::numeric_limits<float>::quiet_NaN();
        view.as<float>()[2] = std::numeric_limits<float>::infinity();
      });
    }
    ForwardingBackend::reduce_scatter(full, epilogue, workspace, stream, tag);
  }

 private:
  bool done_ = false;
};

/// Two ranks whose first step is not finite.
Started poisoned(const Overrides& more = {}) {
  return {.world = 2, .overrides = more, .wrap = [](const Communicator& world) {
            return std::make_shared<Poisoning>(world);
          }};
}

const Overrides kSkips{"run.nonfinite=skip"};

Json report_in(const std::string& folder) {
  std::ifstream file(folder + "/report.json");
  return Json::parse(file);
}

std::string console_of(const CutRun& run) { return run.tiny().folder().read("out.txt"); }

TEST(NonfiniteReport, HasTheFirstBadValuesAndTheConfiguration) {
  const CutRun run;
  EXPECT_THAT(run.refusal(poisoned()), HasSubstr("step 1: the gradient of "));
  const std::string folder = run.folder() + "/nonfinite_step_1";
  EXPECT_THAT(console_of(run), HasSubstr("step 1 was not finite: its batch, the batch's place in "
                                         "the data and the first bad values are in " +
                                         folder));
  const Json report = report_in(folder);
  EXPECT_EQ(report["step"], 1);
  EXPECT_EQ(report["first_on_rank"], 0);
  EXPECT_GT(report["loss"], 0.0);
  EXPECT_EQ(report["loss_scale"], 1.0);
  EXPECT_TRUE(report["gradient_norm"].is_string()) << report["gradient_norm"];
  EXPECT_EQ(report["configuration"]["train_batch_size"], 16);
  EXPECT_EQ(report["configuration"]["optimizer.type"], "AdamW");
  ASSERT_EQ(report["ranks"].size(), 2U);
  for (int rank = 0; rank < 2; ++rank) {
    const Json& of = report["ranks"][static_cast<std::size_t>(rank)];
    EXPECT_EQ(of["rank"], rank);
    EXPECT_EQ(of["host"], host_name());
    EXPECT_EQ(of["losses"].size(), 4U);
    EXPECT_EQ(of["parameter"]["nan"], 0);
  }
  const Json& bad = report["ranks"][0]["gradient"];
  EXPECT_EQ(bad["nan"], 1);
  EXPECT_EQ(bad["infinite"], 1);
  EXPECT_LE(bad["least_finite"], bad["greatest_finite"]);
  const auto place =
      bad["first"]["element"].get<std::size_t>() - bad["first"]["values_from"].get<std::size_t>();
  EXPECT_EQ(bad["first"]["values"][place], "nan");
  EXPECT_EQ(bad["first"]["values"][place + 1], "inf");
  EXPECT_TRUE(bad["first"]["values"][place - 1].is_number());
}

TEST(NonfiniteReport, HasEveryRowOfTheStepAndItsPlaceInTheData) {
  for (const char* shuffle : {"data.shuffle=false", "data.shuffle=true"}) {
    SCOPED_TRACE(shuffle);
    const CutRun run;
    run.refusal(poisoned({shuffle}));
    const std::string folder = run.folder() + "/nonfinite_step_1";
    const Json data = report_in(folder)["data"];
    EXPECT_EQ(data["rows"], 16);
    EXPECT_EQ(data["rows_of_the_step"], 16);
    EXPECT_EQ(data["rows_with_another_last_target"] == 0,
              shuffle == std::string("data.shuffle=false"));
    const TokenFile saved(folder + "/tokens.bin");
    EXPECT_EQ(saved.count(), 16 * 16 + 1);
    ASSERT_EQ(data["micro_batches"].size(), 8U);
    std::int64_t row = 0;
    for (std::size_t m = 0; m < 8; ++m) {
      const Json& micro_batch = data["micro_batches"][m];
      EXPECT_EQ(micro_batch["micro_batch"], m);
      EXPECT_EQ(micro_batch["data_rank"], m % 2);
      for (const Json& of : micro_batch["rows"]) {
        EXPECT_EQ(of["row"], row);
        const TokenFile file(of["file"].get<std::string>());
        EXPECT_EQ(file.at(of["token"].get<std::int64_t>()), saved.at(row * 16));
        ++row;
      }
    }
  }
}

TEST(NonfiniteReport, ItsTokensTrainTheStepAgain) {
  const CutRun run;
  run.refusal(poisoned());
  const std::string folder = run.folder() + "/nonfinite_step_1";
  const CutRun again;
  again.start({.world = 1, .overrides = {"data.train=" + folder + "/tokens.bin", "run.steps=1"}});
  EXPECT_EQ(again.tiny().log()[0]["loss"], report_in(folder)["loss"]);
}

TEST(NonfiniteReport, AFolderThatIsThereStaysAsItIs) {
  const CutRun run;
  const std::string folder = run.folder() + "/nonfinite_step_1";
  fs::create_directories(folder);
  run.start(poisoned(kSkips));
  EXPECT_THAT(console_of(run), HasSubstr("step 1 was not finite: its batch is not saved: " +
                                         folder + " is there and stays as it is"));
  EXPECT_TRUE(fs::is_empty(folder));

  const CutRun linked;
  fs::create_directories(linked.folder());
  const std::string target = linked.tiny().folder().path("elsewhere");
  fs::create_directories(target);
  fs::create_directory_symlink(target, linked.folder() + "/nonfinite_step_1");
  linked.start(poisoned(kSkips));
  EXPECT_THAT(console_of(linked), HasSubstr("is there and stays as it is"));
  EXPECT_TRUE(fs::is_empty(target));
}

TEST(NonfiniteReport, ARunKeepsEightAtMost) {
  const CutRun run;
  for (int step = 90; step < 90 + kMostNonfiniteSteps; ++step) {
    fs::create_directories(fmt::format("{}/nonfinite_step_{}", run.folder(), step));
  }
  run.start(poisoned(kSkips));
  EXPECT_THAT(console_of(run),
              HasSubstr("its batch is not saved: " + run.folder() +
                        " has 8 folders nonfinite_step_N; remove those that are done with"));
  EXPECT_FALSE(fs::exists(run.folder() + "/nonfinite_step_1"));
  fs::remove(run.folder() + "/nonfinite_step_90");
  run.start(poisoned(plus(kSkips, {"run.steps=7"})));
  EXPECT_TRUE(fs::exists(run.folder() + "/nonfinite_step_7/report.json"));
}

TEST(NonfiniteReport, WithoutCheckpointsItLiesBesideTheLog) {
  const CutRun run;
  run.refusal(poisoned({"run.checkpoint.folder=null"}));
  EXPECT_EQ(report_in(run.tiny().folder().path("nonfinite_step_1"))["step"], 1);

  const CutRun nowhere;
  nowhere.refusal(poisoned({"run.checkpoint.folder=null", "run.log=/dev/null"}));
  EXPECT_THAT(console_of(nowhere),
              HasSubstr("step 1 was not finite: its batch is not saved: give "
                        "run.checkpoint.folder, or a file as run.log, for a place"));
}

TEST(NonfiniteReport, AFolderThatCannotBeMadeDoesNotEndTheRun) {
  const CutRun run;
  const std::string file = run.tiny().folder().write("file", "x");
  const Ended ended =
      run.start(poisoned(plus(kSkips, {"run.checkpoint.folder=" + file + "/ck", "run.steps=1"})));
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("step 1 was not finite: its batch is not saved: "),
                               HasSubstr("the update was skipped, 1 in a row")));
}

TEST(NonfiniteReport, OverflowsOfADynamicLossScaleAreNone) {
  const CutRun run;
  const Overrides overflowing{"fp16.enabled=true", "fp16.initial_scale_power=32",
                              "fp16.hysteresis=1", "run.steps=4"};
  const Ended ended = run.start({.world = 2, .overrides = overflowing});
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr(" overflows fp16 at loss scale "), Not(HasSubstr("was not finite"))));
  EXPECT_FALSE(fs::exists(run.folder() + "/nonfinite_step_1"));
  const CutRun exhausted;
  const Overrides least = plus(overflowing, {"fp16.min_loss_scale=4294967296"});
  EXPECT_THAT(exhausted.refusal({.world = 2, .overrides = least}), HasSubstr("the smallest that"));
  EXPECT_TRUE(fs::exists(exhausted.folder() + "/nonfinite_step_1/report.json"));
}

}  // namespace
}  // namespace zero::testing
