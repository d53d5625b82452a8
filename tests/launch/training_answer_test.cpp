// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/plan/training_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

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
  question.axes.batch.reset();
  question.axes.shards = {2};
  for (const Candidate& each : candidates(question))
    EXPECT_EQ(each.mesh.shard, 2);  // at stage 0 too
  question.axes.shards = {3};
  EXPECT_THAT(error_of([&] { candidates(question); }),
              HasSubstr("has 3 ranks along its shard axis"));
  question.axes.shards.clear();
  question.axes.batch = 3;
  question.axes.tensors = {3};
  EXPECT_THAT(error_of([&] { candidates(question); }), HasSubstr("--tensor: no mesh of 1 x 2"));
  question.axes.tensors = {1};
  EXPECT_THAT(error_of([&] { candidates(question); }), HasSubstr("no candidate: --batch 3"));
  question = question_about(kSmallModel, 1, 1, 1'000'000'000, 64);
  question.axes.stages = {3};
  EXPECT_THAT(error_of([&] { candidates(question); }), HasSubstr("give --stage 0"));
}

// Tensor ranks share the rows of the residual stream.
TEST(Candidates, GiveEachTensorRankARow) {
  TrainingQuestion question = question_about(kSmallModel, 1, 2, 1'000'000'000, 1);
  question.axes.tensors = {2};
  question.axes.micros = {1, 2};
  for (const Candidate& each : candidates(question)) EXPECT_EQ(each.micro, 2);
  question.axes.micros = {1};
  EXPECT_THAT(error_of([&] { candidates(question); }), HasSubstr("fewer than the tensor ranks"));
}

// Two ranks hold the one key head, of 24 x 48 elements behind as many of a query head: 4.5 blocks.
TEST(Candidates, LeaveOutSmallMomentsWhoseCopiesWouldDrift) {
  TrainingQuestion question = question_about(
      "family=llama,layers=2,width=48,heads=2,kv_heads=1,intermediate=64,context=64,vocabulary=256",
      1, 2, 1'000'000'000, 64);
  question.axes.tensors = {2};
  for (const Candidate& each : candidates(question)) {
    EXPECT_NE(each.moments, MomentFormat::eight_bit);
  }
  question.axes.moments = {MomentFormat::eight_bit};
  EXPECT_THAT(error_of([&] { candidates(question); }),
              HasSubstr("would have other blocks of them; give --moments fp32 or bf16"));
  const Candidate drifting{.mesh = {1, 1, 2}, .moments = MomentFormat::eight_bit};
  EXPECT_THAT(error_of([&] { exact_plan(config_of(question, drifting), BackendKind::local); }),
              HasSubstr("are held by 2 ranks of the tensor axis, whose blocks of 256 elements"))
      << "as the run refuses it";
}

TEST(Candidates, AreRankedByTheTenThousand) {
  TrainingQuestion question = question_about(kSmallModel, 8, 8, 80'000'000'000, 64);
  question.axes.accumulations = {1, 2};
  const auto all = static_cast<std::size_t>(std::ssize(candidates(question)));
  EXPECT_GE(all, 10'000);
  const Ranking ranking = ranking_of(question);
  EXPECT_EQ(ranking.count(), all);
  EXPECT_TRUE(std::ranges::is_sorted(
      ranking.fitting, [](const Ranked& a, const Ranked& b) { return a.cost < b.cost; }));
}

TEST(Ranking, WithoutRatesTakesLeastFlopThenLeastBytesBetweenHosts) {
  TrainingQuestion question = question_about(kSmallModel, 2, 2, 80'000'000'000, 64);
  question.axes.computes = {DType::fp32, DType::bf16};
  const Ranking ranking = ranking_of(question);
  const Ranked& first = ranking.fitting.front();
  EXPECT_EQ(first.candidate.compute, DType::bf16);
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
  EXPECT_THAT(order_text(Machine{}),
              AllOf(HasSubstr("16 bits before fp32"), HasSubstr("No rates are given")));
}

TEST(TrainingAnswers, AreWrittenAndReadBackToTheSamePlan) {
  TrainingQuestion question = question_about(kSmallModel, 1, 4, 400'000'000, 64);
  question.data = {"a.bin", "b.bin"};
  TrainingAnswer answer = answer_training(question, 4);
  ASSERT_FALSE(answer.rows.empty());
  const Scratch folder;
  write_rows(answer, folder.path("run.json"));
  EXPECT_EQ(answer.rows.front().written, folder.path("run.json"));
  EXPECT_THAT(text_of(answer),
              HasSubstr("row 1: written to " + folder.path("run.json") +
                        "; next: zero_train --plan --world 4 --config " + folder.path("run.json")));
  for (const PlannedRow& row : answer.rows) {
    const TrainConfig config =
        make_train_config(Configuration::read(row.written, {}), question.machine.world());
    EXPECT_EQ(exact_plan(config, question.machine.backend()).memory, row.exact.memory);
    EXPECT_EQ(config.batch.micro, row.ranked.candidate.micro);
    EXPECT_EQ(config.engine.stage, row.ranked.candidate.stage);
    EXPECT_EQ(config.engine.optimizer.moments, row.ranked.candidate.moments);
    EXPECT_EQ(config.recompute.memory_limit, 400'000'000);
    EXPECT_EQ(config.data.train, question.data);
    EXPECT_LE(row.bytes, 400'000'000);
  }
  EXPECT_THAT(error_of([&] { write_rows(answer, folder.path("run.json")); }),
              HasSubstr("run.json exists; give another name"));
  EXPECT_THAT(error_of([&] { write_rows(answer, folder.path("none/run.json")); }),
              HasSubstr("cannot be written"));
}

TEST(TrainingAnswers, AreWrittenWholeOrNotAtAll) {
  const Scratch folder;
  const std::string path = folder.path("run.json");
  EXPECT_NO_THROW(check_written(path, 3));
  EXPECT_TRUE(folder.names().empty());
  folder.write("run-2.json", "mine");
  EXPECT_NO_THROW(check_written(path, 1));
  EXPECT_THAT(error_of([&] { check_written(path, 3); }), HasSubstr("run-2.json exists"));
  EXPECT_THAT(error_of([&] { check_written(folder.path("none/run.json"), 1); }),
              HasSubstr("none/run.json cannot be written"));
  for (const char* nameless : {"", "a/"}) {
    EXPECT_THAT(error_of([&] { check_written(nameless, 1); }), HasSubstr("expected the name"));
  }
  TrainingAnswer answer{.question = question_about(kSmallModel, 1, 1, 400'000'000, 64)};
  answer.rows.resize(2);
  EXPECT_THAT(error_of([&] { write_rows(answer, path); }), HasSubstr("run-2.json exists"));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"run-2.json"});  // run.json is taken back
  EXPECT_EQ(folder.read("run-2.json"), "mine");
}

// Partial sums: 65536 = 2^16 micro-batches keep 16, of which in fp32 the gradient is one.
TEST(TrainingAnswers, OfManyMicroBatchesAreFound) {
  TrainingQuestion question = question_about(kSmallModel, 1, 2, 4'000'000'000, 64);
  question.axes.stages = {2};
  question.axes.micros = {1};
  question.axes.accumulations = {kMostAccumulation};
  question.axes.computes = {DType::bf16};
  const TrainingAnswer answer = answer_training(question, 1);
  ASSERT_EQ(answer.rows.size(), 1U);
  EXPECT_THAT(text_of(answer), HasSubstr("accumulation of 65536 keeps 16 partial sums"));
  const auto refused = [&] { return error_of([&] { candidates(question); }); };
  question.axes.accumulations = {kMostAccumulation + 1};
  EXPECT_THAT(refused(), HasSubstr("--accumulation is 65537, expected at most 65536"));
  question.axes.accumulations = {1};
  question.axes.micros = {kMostMicro + 1};
  EXPECT_THAT(refused(), HasSubstr("--micro is 65537"));
  question.axes.micros = {1};
  question.axes.batch = std::int64_t{1} << 24;  // of two ranks: 2^23 micro-batches each
  EXPECT_THAT(refused(), HasSubstr("--batch 16777216"));
  question.axes.batch.reset();
  question.axes.micros.assign(200'000, 1);  // x 3 formats of moments, at least
  EXPECT_THAT(refused(), HasSubstr("more than 500000 candidates"));
}

TEST(TrainingAnswers, TellTheirSteps) {
  std::vector<std::string> steps;
  answer_training(question_about(kSmallModel, 1, 2, 400'000'000, 64), 1,
                  [&](const std::string& step) { steps.push_back(step); });
  EXPECT_THAT(steps, ::testing::Contains("planning row 1 of 1"));
}

TEST(TrainingAnswers, NameTheFlagsOfTheSmallestAtTheSameCost) {
  const TrainingQuestion question = question_about(kSmallModel, 1, 1, 1'000'000'000, 64);
  const TrainingAnswer answer = answer_training(question, 1);
  EXPECT_THAT(answer.rows.front().notes,
              ::testing::Contains(HasSubstr("--write writes this row: for that one give --stage 0 "
                                            "--moments 8bit --micro 1 --shard 1 --tensor 1")));
}

TEST(TrainingAnswers, SayWhatAccumulationKeepsAndHowManyFlop) {
  TrainingQuestion question = question_about(kSmallModel, 1, 1, 1'000'000'000, 64);
  question.axes.micros = {1};
  question.axes.computes = {DType::bf16};
  question.axes.accumulations = {32};
  const TrainingAnswer answer = answer_training(question, 1);
  // Before the last micro-batch a tree keeps sums of 16, 8, 4, 2 and 1: 5 x 4 B.
  EXPECT_THAT(answer.rows.front().notes,
              ::testing::Contains(HasSubstr("accumulation of 32 keeps 5 partial sums of each "
                                            "gradient, 20 B a parameter")));
  EXPECT_THAT(text_of(answer), ::testing::ContainsRegex("[0-9]G +0.0 %"));
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
  Candidate lower = answer.rows[0].ranked.candidate;
  lower.stage = 2;
  const std::int64_t bytes =
      exact_plan(config_of(question, lower), question.machine.backend()).memory.bounded();
  const bool said = text_of(answer).find("stage 2 takes") != std::string::npos;
  EXPECT_EQ(said, bytes <= answer.rows[0].bytes);
}

}  // namespace
}  // namespace zero::testing
