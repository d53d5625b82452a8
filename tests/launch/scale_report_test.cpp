// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/scale_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "launch/plan/model_choice.h"
#include "launch/telemetry/chart.h"
#include "tests/scratch.h"

namespace zero {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Scratch;

/// A report of a host with two cores of 1 GFLOP/s each.
ScaleReport about() {
  ScaleReport report;
  report.sweep.model_text = "tiny <b>";
  report.sweep.model = model_of("family=gpt2,layers=1,width=32,heads=2,context=32,vocabulary=256");
  report.sweep.sequence = 16;
  report.repeats = 2;
  report.peak = {.product_rate = 2e9, .cores = 2};
  report.machine = {{"processor", "a & b"}};
  report.commands = "zero_train --config 'x'\n";
  return report;
}

ScaleRun run_of(const ScalePoint& point, int repeat, double rate, int threads = 1) {
  return {.point = point,
          .repeat = repeat,
          .figures = {.tokens_per_second = rate,
                      .step_seconds = 64 / rate,
                      .communication_seconds = 0.2,
                      .exposed_seconds = 0.05,
                      .planned_bytes = 2 << 20,
                      .used_bytes = 1 << 20,
                      .plan_exact = true,
                      .threads = threads,
                      .state_hash = "aa"}};
}

const ScalePoint kOne{};
const ScalePoint kStage0{.stage = 0, .world = 2};
const ScalePoint kStage3{.stage = 3, .world = 2};

TEST(ScaleRows, EfficiencyIsOfTheCoresInUse) {
  // One process has both cores; two ranks have one each.
  const auto rows = scale_rows(about(), {kOne, kStage0},
                               {run_of(kOne, 1, 1000, 2), run_of(kOne, 2, 1010, 2),
                                run_of(kStage0, 1, 800), run_of(kStage0, 2, 804)});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].units, 2);
  EXPECT_EQ(rows[1].units, 2);
  EXPECT_NEAR(rows[1].efficiency, 802.0 / 1005, 1e-9);
  EXPECT_EQ(rows[1].baseline, "one process");
  EXPECT_NEAR(rows[1].spread, 4.0 / 802, 1e-9);
  EXPECT_NEAR(rows[1].flop_share, 802 * about().sweep.model.flop_per_token(16) / 2e9, 1e-9);
  EXPECT_THAT(rows[1].remarks, IsEmpty());
}

TEST(ScaleRows, OfGpusIdealIsByRanksAndWithoutOneProcessBySmallestWorld) {
  ScaleReport report = about();
  report.sweep.device = DeviceKind::cuda;
  const ScalePoint four{.stage = 0, .world = 4};
  const auto rows =
      scale_rows(report, {kStage0, four}, {run_of(kStage0, 1, 1000), run_of(four, 1, 1500)});
  EXPECT_NEAR(rows[1].efficiency, 0.75, 1e-9);
  EXPECT_EQ(rows[1].baseline, "strong, stage 0, 2 ranks");
  EXPECT_THAT(rows[1].remarks, ElementsAre("one run: its spread is not known"));
}

TEST(ScaleRows, APeakThatIsExceededIsDoubted) {
  ScaleReport report = about();
  report.peak.product_rate = 1;
  EXPECT_THAT(scale_rows(report, {kStage0}, {run_of(kStage0, 1, 1000)})[0].remarks,
              Contains(HasSubstr("above the peak")));
}

TEST(ScaleRows, NoiseAboveAnEffectIsNamed) {
  const auto rows =
      scale_rows(about(), {kOne, kStage0, kStage3},
                 {run_of(kOne, 1, 1000, 2), run_of(kOne, 2, 1000, 2), run_of(kStage0, 1, 900),
                  run_of(kStage0, 2, 1060), run_of(kStage3, 1, 500), run_of(kStage3, 2, 500)});
  // 980 +- 8 % cannot be told from ideal; 500 can, from both.
  EXPECT_THAT(rows[1].remarks, ElementsAre("noise: spread 16.3 %, distance to ideal 2.0 %"));
  EXPECT_THAT(rows[2].remarks, IsEmpty());
  const auto near =
      scale_rows(about(), {kOne, kStage0, kStage3},
                 {run_of(kOne, 1, 1000, 2), run_of(kOne, 2, 1000, 2), run_of(kStage0, 1, 500),
                  run_of(kStage0, 2, 550), run_of(kStage3, 1, 510), run_of(kStage3, 2, 520)});
  EXPECT_THAT(near[2].remarks, ElementsAre("noise: spread 9.5 %, distance to stage 0 1.9 %"));
  const auto above = scale_rows(about(), {kOne, kStage0},
                                {run_of(kOne, 1, 1000, 2), run_of(kOne, 2, 1000, 2),
                                 run_of(kStage0, 1, 1500), run_of(kStage0, 2, 1510)});
  EXPECT_THAT(above[1].remarks, ElementsAre(HasSubstr("faster than ideal")));
}

TEST(ScaleRows, StatesThatDifferAndPlansThatDoNotHoldAreNamed) {
  std::vector<ScaleRun> runs{run_of(kStage0, 1, 500), run_of(kStage0, 2, 500)};
  runs[1].figures.state_hash = "bb";
  runs[0].figures.plan_exact = false;
  EXPECT_THAT(scale_rows(about(), {kStage0}, runs)[0].remarks,
              ElementsAre(HasSubstr("state_hash"), "memory is not as planned"));
}

ScaleReport full_report() {
  ScaleReport report = about();
  ScaleRun failed{.point = kStage3, .failure = "killed | signal 9"};
  report.rows = scale_rows(report, {kOne, kStage0, kStage3},
                           {run_of(kOne, 1, 1000, 2), run_of(kOne, 2, 1010, 2),
                            run_of(kStage0, 1, 800), run_of(kStage0, 2, 804), failed});
  return report;
}

TEST(ScaleReport, TellsOfFailedRunsEverywhere) {
  const ScaleReport report = full_report();
  EXPECT_TRUE(report.failed());
  const auto json = report.json();
  EXPECT_EQ(json["rows"][2]["failure"], "killed | signal 9");
  EXPECT_TRUE(json["rows"][2]["median"].is_null());
  EXPECT_EQ(json["rows"][1]["tokens_per_second"], (std::vector<double>{800, 804}));
  EXPECT_EQ(json["rows"][1]["median"]["used_bytes"], 1 << 20);
  EXPECT_TRUE(json["rows"][1]["predicted"].is_null());
  const std::string text = report.markdown();
  EXPECT_THAT(text, AllOf(HasSubstr("| strong, stage 3, 2 ranks |  |"),
                          HasSubstr("FAILED: killed / signal 9 |"),
                          HasSubstr("| strong, stage 0, 2 ranks | 802 | 0.5 % | 0.80 | 79.8 | 50.0 "
                                    "| 75.0 % | 1.0 | 2.0 |"),
                          Not(HasSubstr("predicted"))));
}

/// Half of the step is exposed communication.
Simulation predicted(double rate, double step) {
  Simulation simulation;
  simulation.step_seconds = step;
  simulation.tokens = rate * step;
  simulation.ranks = {{.step_seconds = step, .exposed_seconds = step / 2}};
  simulation.bytes = 1 << 20;
  simulation.limited_by = "products";
  return simulation;
}

TEST(ScaleReport, IsAPageThatNeedsNoNetwork) {
  ScaleReport report = full_report();
  std::string page = report.html();
  EXPECT_THAT(page, AllOf(HasSubstr("<title>Scaling of tiny &lt;b&gt;</title>"),
                          HasSubstr("a &amp; b"), HasSubstr("tokens/s, of ideal"),
                          HasSubstr("class=\"failed\">FAILED: killed | signal 9"),
                          HasSubstr("class=\"bar c0\""), Not(HasSubstr("http")),
                          Not(HasSubstr("<script")), Not(HasSubstr("hollow c0\" cx"))));
  report.rows[1].predicted = predicted(790, 0.08);
  page = report.html();
  EXPECT_THAT(page, AllOf(HasSubstr("hollow c0\" cx"), HasSubstr("predicted tokens/s")));
  const auto json = report.json()["rows"][1]["predicted"];
  EXPECT_DOUBLE_EQ(json["tokens_per_second"].get<double>(), 790);
  EXPECT_DOUBLE_EQ(json["exposed_communication_seconds"].get<double>(), 0.04);
  const Scratch folder;
  write_report(report, folder.path());
  EXPECT_THAT(folder.names(), ElementsAre("report.html", "report.json", "report.md"));
}

TEST(ScaleReport, HasNoColumnThatWouldBeEmpty) {
  ScaleReport report = about();
  report.rows = scale_rows(report, {kStage0, kStage3}, {});
  report.rows[0].predicted = predicted(790, 0.08);
  EXPECT_THAT(
      report.table(),
      ElementsAre(
          ElementsAre("point", "predicted tokens/s", "predicted step ms", "predicted exposed ms",
                      "predicted MiB a rank", "limited by", "remarks"),
          ElementsAre("strong, stage 0, 2 ranks", "790", "80.0", "40.0", "1.0", "products",
                      "not measured"),
          ElementsAre("strong, stage 3, 2 ranks", "", "", "", "", "", "not measured yet")));
  EXPECT_THAT(report.html(),
              AllOf(HasSubstr("<td class=\"number\">790</td>"), HasSubstr("<td>products</td>")));
  report.rows.clear();
  EXPECT_THAT(report.table(), ElementsAre(ElementsAre("point", "remarks")));
}

TEST(ScaleReport, PredictionsStandBesideWhatWasMeasured) {
  ScaleReport report = full_report();
  EXPECT_EQ(report.errors_text(), "");
  const double step = report.rows[1].figures.step_seconds;
  report.rows[1].predicted = predicted(790, 1.1 * step);
  report.rows[2].predicted = predicted(500, 0.2);
  EXPECT_NEAR(report.rows[1].error().value(), 0.1, 1e-9);
  EXPECT_FALSE(report.rows[2].error());  // its run failed
  EXPECT_THAT(report.errors_text(),
              AllOf(HasSubstr("1 point;"), HasSubstr("10.0 % on average"),
                    HasSubstr("+10.0 % at worst (strong, stage 0, 2 ranks)")));
  EXPECT_THAT(report.markdown(),
              AllOf(HasSubstr("| products | +10.0 % |"), HasSubstr("Predicted: 1 point;")));
  EXPECT_NEAR(report.json()["rows"][1]["predicted"]["error"].get<double>(), 0.1, 1e-9);
  EXPECT_TRUE(report.json()["rows"][2]["predicted"]["error"].is_null());
}

TEST(Predict, EachPointIsSimulatedOnItsShareOfTheCluster) {
  const Machine machine =
      machine_of(nlohmann::json::parse(R"({"hosts": 2, "devices": 2, "kind": "cpu", "memory": "8GB",
        "compute": "50GFLOP/s", "compute_fp32": "50GFLOP/s",
        "memory_bandwidth": "10GB/s",
        "links": {"within_host": "4GB/s", "between_hosts": "20MB/s"}})"),
                 "cluster.json");
  Sweep sweep{.worlds = {1, 2, 4}, .stages = {0, 3}, .sequence = 32};
  sweep.scalings = {Scaling::strong};
  sweep.model = model_of("family=gpt2,layers=2,width=64,heads=2,context=64,vocabulary=128");
  std::vector<std::string> left_out;
  const std::vector<ScalePoint> points = sweep.points(left_out);
  const Predictions predictions = predict(sweep, points, machine);
  ASSERT_EQ(predictions.size(), points.size());
  const Simulation& one = predictions.at("one-process");
  const Simulation& two = predictions.at("strong-stage3-world2");
  const Simulation& four = predictions.at("strong-stage3-world4");
  EXPECT_EQ(one.slowest().collective_seconds(), 0);
  EXPECT_LT(two.bytes, one.bytes);
  EXPECT_LT(two.step_seconds, four.step_seconds);  // two hosts on a slow link
  EXPECT_THAT(four.limited_by, HasSubstr("between hosts"));
}

TEST(Chart, HasErrorBarsAndNothingWithoutPoints) {
  const auto plain = [](double value) { return std::to_string(static_cast<int>(value)); };
  EXPECT_EQ(line_chart("t", {{.name = "a", .style = "c0"}}, plain), "");
  EXPECT_EQ(bar_chart("t", {}, plain), "");
  const std::string svg = line_chart(
      "t", {{.name = "a", .style = "c0", .points = {{1, 10, 9, 12}, {2, 20, 20, 20}}}}, plain);
  EXPECT_THAT(svg, AllOf(HasSubstr(">0</text>"), HasSubstr(">20</text>"), HasSubstr("bar c0"),
                         HasSubstr("a, 2 ranks: 20")));
}

TEST(Chart, HasAtMostSixRoundSteps) {
  for (const auto& [most, step] : {std::pair{6.0, 1.0}, {7, 2}, {13, 5}, {60, 10}, {0.5, 0.1}}) {
    EXPECT_DOUBLE_EQ(axis_step(most), step) << most;
  }
}

}  // namespace
}  // namespace zero
