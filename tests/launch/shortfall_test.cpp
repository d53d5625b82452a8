// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "launch/plan/training_answer.h"
#include "launch/plan/written_config.h"
#include "tests/errors.h"
#include "tests/launch/planned_question.h"
#include "tests/scratch.h"

// What zero_plan says where no candidate fits.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Shortfalls, SayWhatIsShortAndWhatWouldHelp) {
  // Tokens enough for shorter sequences, which are tried on this one GPU: it has no sharded stage.
  TrainingQuestion question = question_about(kSmallModel, 1, 1, 40'000'000, 256);
  TrainingAnswer answer = answer_training(question, 3);
  write_rows(answer, "never");
  EXPECT_FALSE(std::filesystem::exists("never"));
  EXPECT_TRUE(answer.rows.empty());
  EXPECT_EQ(answer.fitting, 0);
  ASSERT_FALSE(answer.too_large.empty());
  EXPECT_GT(answer.too_large.front().bytes, 40'000'000);
  const std::string text = text_of(answer);
  EXPECT_THAT(
      text, AllOf(HasSubstr("no candidate fits: the least takes"), HasSubstr("short by"),
                  HasSubstr("more devices"), HasSubstr("shorter sequences"),
                  HasSubstr("optimizer states are "), HasSubstr(" of it, all model states "),
                  HasSubstr("; not offered here: tiers below memory, of gradients; LoRA, of "),
                  ::testing::Not(HasSubstr("roadmap")), HasSubstr("nothing written: no row fits")));
  const auto json = json_of(answer);
  EXPECT_TRUE(json["rows"].empty());
  EXPECT_GT(json["too_large"][0]["short_bytes"].get<std::int64_t>(), 0);
  EXPECT_FALSE(json["shortfall"].empty());
}

/// The number behind `words` in the lines; 0 if none has them.
std::int64_t number_behind(const std::vector<std::string>& lines, const std::string& words) {
  for (const std::string& line : lines) {
    if (const auto at = line.find(words); at != std::string::npos) {
      return std::stoll(line.substr(at + words.size()));
    }
  }
  return 0;
}

// One micro-batch fits and 16 do not, for their partial sums. Advice keeps the other flags.
TEST(Shortfalls, AdviseWhatFitsIfItIsFollowed) {
  TrainingQuestion question = question_about(kSmallModel, 1, 1, 1, 256);
  question.axes.micros = {1};
  for (const bool by_batch : {true, false}) {
    const auto with = [&](std::int64_t accumulation) {
      TrainingQuestion other = question;
      if (by_batch) other.axes.batch = accumulation;  // one rank
      if (!by_batch) other.axes.accumulations = {accumulation};
      return other;
    };
    const std::int64_t one = ranking_of(with(1)).missing.front().bytes;
    const std::int64_t sixteen = ranking_of(with(16)).missing.front().bytes;
    ASSERT_LT(one, sixteen);
    TrainingQuestion asked = with(16);
    asked.machine.memory = (one + sixteen) / 2;
    const std::vector<std::string> lines = answer_training(asked, 1).shortfall;
    const std::int64_t count = number_behind(
        lines, by_batch ? "fewer micro-batches help: --batch " : "help: --accumulation ");
    ASSERT_GE(count, 1);
    for (std::int64_t each = 8; each >= 1; each /= 2) {
      TrainingQuestion fewer = with(each);
      fewer.machine = asked.machine;
      EXPECT_EQ(ranking_of(fewer).fitting.empty(), each > count) << each;
    }
    if (const std::int64_t tokens = number_behind(lines, "shorter sequences help: --sequence ")) {
      TrainingQuestion shorter = asked;
      shorter.sequence = tokens;
      EXPECT_FALSE(ranking_of(shorter).fitting.empty()) << tokens;
    }
    TrainingQuestion larger = asked;
    larger.machine.hosts = static_cast<int>(number_behind(lines, "more devices help: "));
    ASSERT_GT(larger.machine.hosts, 1);
    EXPECT_FALSE(ranking_of(larger).fitting.empty()) << larger.machine.hosts;
  }
}

TEST(Shortfalls, AdviseTheStageThatFitsIfStagesAreAsked) {
  TrainingQuestion question = question_about(kSmallModel, 1, 4, 1, 64);
  question.axes.tensors = {1};
  const auto least_of = [&](int stage) {
    question.axes.stages = {stage};
    return ranking_of(question).missing.front().bytes;
  };
  const std::int64_t at_one = least_of(1);
  const std::int64_t at_zero = least_of(0);
  ASSERT_LT(at_one, at_zero);
  question.machine.memory = (at_one + at_zero) / 2;
  EXPECT_THAT(answer_training(question, 1).shortfall,
              ::testing::Contains("a higher stage helps: --stage 1 fits by the closed forms"));
  question.machine.memory = 1'000'000;
  EXPECT_THAT(answer_training(question, 1).shortfall,
              ::testing::Contains("higher stages do not help: --stage 3 does not fit either"));
  question.axes.stages = {0, 1, 2, 3};
  for (const std::string& line : answer_training(question, 1).shortfall) {
    EXPECT_THAT(line, ::testing::Not(HasSubstr("higher stage"))) << "all were tried";
  }
}

// Doubled hosts end at what zero_plan itself takes: 2048 x 8 devices.
TEST(Shortfalls, AdviseNoMoreDevicesThanArePlanned) {
  TrainingQuestion question = question_about(kSmallModel, 1, 8, 100'000, 64);
  question.axes = {
      .stages = {3}, .micros = {1}, .recomputes = {RecomputeChoice{}}, .computes = {DType::bf16}};
  EXPECT_THAT(answer_training(question, 1).shortfall,
              ::testing::Contains("more devices do not help: 2048 x 8 (hosts x devices) do not fit "
                                  "either"));
}

// Closed forms of a machine with more memory stand for closed forms that are too low.
TEST(Shortfalls, KeepRowsThatFitByTheirClosedFormsAlone) {
  TrainingQuestion question = question_about(kSmallModel, 1, 1, 1'000'000'000, 64);
  question.axes = {.micros = {2, 1}, .recomputes = {RecomputeChoice{}}, .computes = {DType::bf16}};
  ClosedForms forms(config_of(question, candidates(question).front()), question.machine);
  const Ranking ranking = rank_candidates(question, forms);
  ASSERT_TRUE(ranking.missing.empty());
  const auto answered = [&](std::int64_t memory) {
    question.machine.memory = memory;
    return answer_ranked(question, ranking, forms, 1);
  };
  const TrainingAnswer none = answered(1'000'000);
  EXPECT_TRUE(none.rows.empty());
  ASSERT_EQ(none.too_large.size(), 3U);
  EXPECT_TRUE(std::ranges::is_sorted(none.too_large, {}, &PlannedRow::bytes));
  EXPECT_THAT(text_of(none), HasSubstr("no candidate fits: the least takes"));
  // One byte less than the best takes: the next one that fits costs the same, none less.
  const std::int64_t best = answered(1'000'000'000).rows.front().bytes;
  const TrainingAnswer next = answered(best - 1);
  ASSERT_EQ(next.rows.size(), 1U);
  EXPECT_LT(next.rows.front().bytes, best);
  EXPECT_TRUE(next.too_large.empty());
}

}  // namespace
}  // namespace zero::testing
