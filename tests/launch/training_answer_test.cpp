// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/training_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "launch/plan/written_config.h"
#include "tests/errors.h"
#include "tests/launch/planned_question.h"
#include "tests/scratch.h"

// Rows of zero_plan: their order, their configurations, and what is said where none fits.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Candidates, AreAllThatTheEngineAccepts) {
  TrainingQuestion question = question_about(kSmallModel, 1, 2, 1'000'000'000, 64);
  question.axes = {.stages = {0, 3},
                   .micros = {2, 1},
                   .accumulations = {1, 4},
                   .recomputes = {{}, {RecomputeChoice::Kind::interval, 1}},
                   .moments = {MomentFormat::fp32},
                   .computes = {DType::bf16}};
  // Meshes 2x1x1 (stage 0 along shards), 1x2x1 and 1x1x2: stage 0 has 1x2x1 and 1x1x2, stage 3 the
  // first of these; each with 2 micro-batches, 2 accumulations, 2 recomputes.
  EXPECT_EQ(candidates(question).size(), 3 * 8);
  question.axes.batch = 4;  // one accumulation each: 4 / (micro x data ranks)
  for (const Candidate& each : candidates(question)) EXPECT_EQ(each.sequences(), 4);
  question.axes.batch = 3;  // a multiple of the data ranks of 1x1x2 alone, with micro-batches of 1
  EXPECT_EQ(candidates(question).size(), 2);
  question.axes.tensors = {3};
  EXPECT_THAT(error_of([&] { candidates(question); }), HasSubstr("--tensor: no mesh of 1 x 2"));
  question.axes.tensors = {1};
  EXPECT_THAT(error_of([&] { candidates(question); }), HasSubstr("no candidate: --batch 3"));
}

TEST(Candidates, AreRankedByTheTenThousand) {
  TrainingQuestion question = question_about(kSmallModel, 8, 8, 80'000'000'000, 64);
  question.axes.accumulations = {1, 2};
  const auto all = static_cast<std::size_t>(std::ssize(candidates(question)));
  EXPECT_GE(all, 10'000);
  const TrainConfig base = config_of(question, candidates(question).front());
  ClosedForms forms(base, question.machine);
  const Ranking ranking = rank_candidates(question, forms);
  EXPECT_EQ(ranking.count(), all);
  EXPECT_TRUE(std::ranges::is_sorted(
      ranking.fitting, [](const Ranked& a, const Ranked& b) { return a.cost < b.cost; }));
}

TEST(Ranking, WithoutRatesTakesLeastFlopThenLeastBytesBetweenHosts) {
  TrainingQuestion question = question_about(kSmallModel, 2, 2, 80'000'000'000, 64);
  const TrainConfig base = config_of(question, candidates(question).front());
  ClosedForms forms(base, question.machine);
  const Ranking ranking = rank_candidates(question, forms);
  const Ranked& first = ranking.fitting.front();
  EXPECT_EQ(first.work.repeated, 0);
  for (const Ranked& each : ranking.fitting) {
    EXPECT_LE(first.cost.flop, each.cost.flop);
    if (each.cost.flop > first.cost.flop) continue;
    EXPECT_LE(first.cost.between_hosts, each.cost.between_hosts);
  }
  EXPECT_EQ(first.cost.seconds, 0);
}

TEST(Ranking, WithRatesTakesLeastTime) {
  TrainingQuestion question = question_about(kSmallModel, 1, 2, 80'000'000'000, 64);
  question.machine.compute = 1e12;
  question.machine.within_host = 1e9;
  const Candidate sharded{.stage = 3, .mesh = {1, 2, 1}};
  const Candidate cut{.mesh = {1, 1, 2}};
  const StepWork work{.flop = 3e12, .repeated = 0, .sent = {0, 2e9, 1e9}};
  EXPECT_EQ(step_seconds(work, sharded, question.machine), 3 + 1);  // FLOP hide the shards' 2 s
  EXPECT_EQ(step_seconds({.flop = 1e12, .sent = {0, 2e9, 0}}, sharded, question.machine), 2);
  Candidate fp32 = cut;
  fp32.compute = DType::fp32;
  EXPECT_EQ(step_seconds(work, fp32, question.machine), 0);  // its rate is not known
  EXPECT_THAT(order_text(question.machine), HasSubstr("least estimated seconds"));
  EXPECT_THAT(order_text(Machine{}), HasSubstr("No rate is assumed"));
}

TEST(TrainingAnswers, AreWrittenAndReadBackToTheSamePlan) {
  TrainingQuestion question = question_about(kSmallModel, 1, 4, 400'000'000, 64);
  question.data = {"a.bin", "b.bin"};
  TrainingAnswer answer = answer_training(question, 4);
  ASSERT_FALSE(answer.rows.empty());
  const Scratch folder;
  write_rows(answer, folder.path("run.json"));
  EXPECT_EQ(answer.rows.front().written, folder.path("run.json"));
  for (const PlannedRow& row : answer.rows) {
    const TrainConfig config =
        make_train_config(Configuration::read(row.written, {}), question.machine.world());
    EXPECT_EQ(exact_plan(config, question.machine.backend()).memory, row.exact.memory);
    EXPECT_EQ(config.batch.micro, row.row.candidate.micro);
    EXPECT_EQ(config.engine.stage, row.row.candidate.stage);
    EXPECT_EQ(config.engine.optimizer.moments, row.row.candidate.moments);
    EXPECT_EQ(config.recompute.memory_limit, 400'000'000);
    EXPECT_EQ(config.data.train, question.data);
    EXPECT_LE(row.bytes, 400'000'000);
  }
  EXPECT_THAT(error_of([&] { write_rows(answer, folder.path("run.json")); }),
              HasSubstr("run.json exists; give another name"));
  EXPECT_THAT(error_of([&] { write_rows(answer, folder.path("none/run.json")); }),
              HasSubstr("cannot be written"));
}

TEST(TrainingAnswers, SayWhatIsShortAndWhatWouldHelp) {
  TrainingQuestion question = question_about(kSmallModel, 1, 1, 40'000'000, 64);
  const TrainingAnswer answer = answer_training(question, 3);
  EXPECT_TRUE(answer.rows.empty());
  EXPECT_EQ(answer.fitting, 0);
  ASSERT_FALSE(answer.too_large.empty());
  EXPECT_GT(answer.too_large.front().bytes, 40'000'000);
  const std::string text = text_of(answer);
  EXPECT_THAT(text, AllOf(HasSubstr("no candidate fits: the least takes"), HasSubstr("short by"),
                          HasSubstr("more devices"), HasSubstr("shorter sequences"),
                          HasSubstr("not there yet, on the roadmap: tiers below device memory"),
                          HasSubstr("LoRA")));
  const auto json = json_of(answer);
  EXPECT_TRUE(json["rows"].empty());
  EXPECT_GT(json["too_large"][0]["short_bytes"].get<std::int64_t>(), 0);
  EXPECT_FALSE(json["shortfall"].empty());
}

TEST(TrainingAnswers, HaveTheSameFiguresInTableAndJson) {
  TrainingQuestion question = question_about(kSmallModel, 1, 2, 1'000'000'000, 64);
  question.axes.batch = 8;
  const TrainingAnswer answer = answer_training(question, 2);
  ASSERT_EQ(answer.rows.size(), 2);
  const auto json = json_of(answer);
  EXPECT_EQ(json["candidates"].get<std::int64_t>(), answer.candidates);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : json["rows"][0]["memory"].items()) {
    sum += bytes.get<std::int64_t>();
  }
  EXPECT_GT(sum, 0);
  EXPECT_EQ(json["rows"][0]["sequences_a_step"], 8);
  EXPECT_EQ(json["rows"][0]["bytes"].get<std::int64_t>(), answer.rows[0].bytes);
  EXPECT_THAT(text_of(answer),
              AllOf(HasSubstr("candidates"), HasSubstr("fits, "), HasSubstr("closed forms are")));
}

// A model whose windows at stage 3 hold all of it: stage 2 sends less and takes no more.
TEST(TrainingAnswers, NameALowerStageThatTakesLess) {
  TrainingQuestion question = question_about(kSmallModel, 1, 8, 1'000'000'000, 64);
  question.axes.stages = {3};
  question.axes.tensors = {1};
  const TrainingAnswer answer = answer_training(question, 1);
  ASSERT_EQ(answer.rows.size(), 1);
  Candidate lower = answer.rows[0].row.candidate;
  lower.stage = 2;
  const std::int64_t bytes =
      bounded_bytes_of(exact_plan(config_of(question, lower), question.machine.backend()).memory);
  const bool said = text_of(answer).find("stage 2 takes") != std::string::npos;
  EXPECT_EQ(said, bytes <= answer.rows[0].bytes);
}

}  // namespace
}  // namespace zero::testing
