// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "launch/plan/training_answer.h"
#include "launch/plan/written_config.h"
#include "tests/errors.h"
#include "tests/launch/planned_question.h"

// What zero_plan says of values below the memory of their device.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(TrainingAnswers, OfferHostMemoryForTheStatesOfGpus) {
  TrainingQuestion question = question_about("gpt2-124m", 1, 1, 2'500'000'000, 64);
  question.machine.reserve = 0;
  question.axes.micros = {1};
  question.axes.recomputes = {{}};
  question.axes.moments = {MomentFormat::fp32};
  question.axes.computes = {DType::bf16};
  question.axes.offloads = {Offload::from("none"), Offload::from("cpu")};
  const Ranking ranking = ranking_of(question);
  ASSERT_EQ(ranking.count(), 2U);
  std::vector<Ranked> all = ranking.fitting;
  all.insert(all.end(), ranking.missing.begin(), ranking.missing.end());
  const auto row = [&](Tier tier) {
    return *std::ranges::find_if(
        all, [&](const Ranked& each) { return each.candidate.offload.optimizer == tier; });
  };
  const std::int64_t states = 12 * question.model.parameter_count();
  EXPECT_LT(row(Tier::host).bytes, row(Tier::device).bytes - states + (std::int64_t{64} << 20));
  EXPECT_GT(row(Tier::host).cost.copied, row(Tier::device).cost.copied);
  const auto written =
      written_configuration(question, row(Tier::host).candidate)["zero_optimization"];
  EXPECT_EQ(written["offload_optimizer"]["device"], "cpu");
  EXPECT_FALSE(written["offload_optimizer"].contains("nvme_path"));
}

/// A question about GPUs in one way of everything but where values are.
TrainingQuestion question_of_tiers(const std::string& model, int gpus, std::int64_t memory) {
  TrainingQuestion question = question_about(model, 1, gpus, memory, 64);
  question.axes.micros = {1};
  question.axes.recomputes = {{RecomputeChoice::Kind::interval, 1}};
  question.axes.moments = {MomentFormat::fp32};
  question.axes.computes = {DType::bf16};
  question.axes.tensors = {1};
  return question;
}

// Lower stages are offered to several shard ranks alone, and one sends nothing.
TEST(TrainingAnswers, NameNoLowerStageForOneShardRank) {
  TrainingQuestion question = question_about(
      "family=llama,layers=2,width=64,heads=4,intermediate=128,vocabulary=256,context=128", 1, 1,
      8'000'000'000, 128);
  question.axes.micros = {32};
  question.axes.offloads = {Offload::from("cpu-all")};
  const TrainingAnswer answer = answer_training(question, 2);
  ASSERT_EQ(answer.rows.size(), 2U);
  for (const PlannedRow& row : answer.rows) {
    EXPECT_EQ(row.ranked.candidate.stage, 3);
    EXPECT_THAT(row.notes, Each(Not(HasSubstr("the lower stage sends less"))));
  }
}

TEST(TrainingAnswers, RankAllTiersOfAGpu) {
  TrainingQuestion question = question_of_tiers("gpt2-124m", 2, 80'000'000'000);
  question.axes.stages = {3};
  question.axes.shards = {2};
  question.axes.offloads.clear();
  for (const std::string& name : kOffloads) question.axes.offloads.push_back(Offload::from(name));
  question.axes.kept_inputs = {KeptInputPlace::device, KeptInputPlace::host};
  const TrainingAnswer answer = answer_training(question, 10);
  ASSERT_EQ(answer.rows.size(), 10U);
  // Less is copied first, and all that has no file before what has one.
  std::vector<std::pair<Offload, KeptInputPlace>> order;
  for (const PlannedRow& row : answer.rows) {
    const Candidate& c = row.ranked.candidate;
    order.emplace_back(c.offload, c.kept_inputs);
    EXPECT_LE(std::abs(row.closed_error()), 0.01);
    EXPECT_EQ(host_bytes(row.exact.memory, question.machine), 2 * row.exact.memory.host);
    EXPECT_EQ(sum_of(row.exact.memory.file) > 0, c.offload.uses(Tier::file));
    EXPECT_EQ(row.ranked.work.filed > 0, c.offload.uses(Tier::file));
    const auto written = written_configuration(question, c);
    EXPECT_EQ(written["activation_checkpointing"].contains("cpu_checkpointing"),
              c.kept_inputs == KeptInputPlace::host);
  }
  constexpr KeptInputPlace kDevice = KeptInputPlace::device;
  constexpr KeptInputPlace kHost = KeptInputPlace::host;
  const std::vector<std::pair<Offload, KeptInputPlace>> expected{
      {{}, kDevice},
      {{}, kHost},
      {Offload::from("cpu"), kDevice},
      {Offload::from("cpu"), kHost},
      {Offload::from("cpu-all"), kDevice},
      {Offload::from("cpu-all"), kHost},
      {Offload::from("nvme"), kDevice},
      {Offload::from("nvme"), kHost},
      {Offload::from("nvme-all"), kDevice},
      {Offload::from("nvme-all"), kHost}};
  EXPECT_EQ(order, expected);
  const std::string text = text_of(answer);
  for (std::size_t i = 0; i < answer.rows.size(); ++i) {
    const std::size_t line = text.find(fmt::format("\n{:>3} ", i + 1));
    ASSERT_NE(line, std::string::npos) << i;
    const std::string offload = kOffloads[i / 2] + (i % 2 == 0 ? " " : " + inputs ");
    EXPECT_THAT(text.substr(line + 1, text.find('\n', line + 1) - line - 1),
                HasSubstr("  " + offload));
  }
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("  offload               pinned, rank / host  in a file\n"),
            HasSubstr("row 2: kept inputs of blocks are in pinned host memory: "),
            HasSubstr("row 6: optimizer states, parameters and kept inputs of blocks are in "),
            HasSubstr(", which limits no row without --host-memory; a step copies "),
            HasSubstr("row 9: optimizer states and parameters are in a rank's file of "),
            HasSubstr("row 9: windows of files are in pinned host memory: ")));
  const auto row = json_of(answer)["rows"][4];
  EXPECT_EQ(row["offload_param"], "cpu");
  EXPECT_EQ(row["kept_inputs"], "device");
  EXPECT_EQ(row["host_bytes"], 2 * row["pinned_bytes"].get<std::int64_t>());
  EXPECT_GT(row["copied_bytes_a_step"].get<double>(),
            26.0 * static_cast<double>(question.model.parameter_count()) / 2);
  EXPECT_EQ(row["file_bytes_a_step"], 0);
}

// 1.5 GB of states over two ranks: a host of 1 GB has no room for them, but a disk has.
TEST(TrainingAnswers, FitTheMemoryOfTheHostToo) {
  TrainingQuestion question = question_of_tiers("gpt2-124m", 2, 1'500'000'000);
  question.machine.host_memory = 1'000'000'000;
  question.axes.offloads = {Offload::from("cpu")};
  TrainingAnswer answer = answer_training(question, 1);
  ASSERT_TRUE(answer.rows.empty());
  const PlannedRow& least = answer.too_large.front();
  EXPECT_EQ(least.shortage.of_device, 0);
  EXPECT_EQ(least.shortage.of_host, 2 * least.exact.memory.host - 1'000'000'000);
  EXPECT_THAT(text_of(answer),
              AllOf(HasSubstr(" of the host's"), HasSubstr("; 1.00 GB (953.67 MiB) of a host"),
                    HasSubstr("no candidate fits: of the least, the 2 ranks of a host pin "),
                    HasSubstr("optimizer states in files help: --offload nvme ")));
  EXPECT_EQ(json_of(answer)["too_large"][0]["host_short_bytes"], least.shortage.of_host);
  question.axes.offloads.push_back(Offload::from("nvme"));
  answer = answer_training(question, 1);
  ASSERT_FALSE(answer.rows.empty());
  EXPECT_EQ(answer.rows.front().ranked.candidate.offload, Offload{.optimizer = Tier::file});
  question.machine.host_memory = 4'000'000'000;
  answer = answer_training(question, 1);
  EXPECT_EQ(answer.rows.front().ranked.candidate.offload, Offload{.optimizer = Tier::host});
  EXPECT_THAT(text_of(answer),
              HasSubstr(" of all ranks of a host that has 3.73 GiB; a step copies "));
}

TEST(Candidates, HaveTiersWhereAMachineHasThem) {
  TrainingQuestion question = question_of_tiers("gpt2-124m", 1, 8'000'000'000);
  const auto refused = [&] { return error_of([&] { candidates(question); }); };
  question.axes.stages = {0};
  question.axes.offloads = {Offload::from("cpu-all")};
  EXPECT_THAT(refused(), HasSubstr("parameters are in host memory at stage 3 only; give --stage 3, "
                                   "or --offload cpu in place of cpu-all"));
  question.axes.stages = {3};
  EXPECT_EQ(candidates(question).size(), 1U) << "of one rank too";
  question.axes.stages = {0};
  question.axes.offloads = {Offload{}};
  question.axes.kept_inputs = {KeptInputPlace::host};
  question.axes.recomputes = {{}};
  EXPECT_THAT(refused(),
              HasSubstr("kept in host memory where more than 2 blocks are computed again "
                        "from theirs alone; give --kept-inputs device, or --recompute"));
  question.axes.recomputes = {{RecomputeChoice::Kind::groups, 2}};  // of 12 blocks, two inputs
  EXPECT_THAT(refused(), HasSubstr("--kept-inputs device"));
  question.axes.recomputes = {{RecomputeChoice::Kind::groups, 3}};
  EXPECT_EQ(candidates(question).size(), 1U);
  question.machine.kind = DeviceKind::cpu;
  EXPECT_THAT(refused(), HasSubstr("in host memory of a CPU anyway; give --kept-inputs device"));
}

// 124M parameters: 1.5 GB of optimizer states, 0.5 of parameters and gradients.
TEST(TrainingAnswers, OfferFilesForTheStatesOfCpus) {
  TrainingQuestion question = question_about("gpt2-124m", 1, 1, 1'500'000'000, 64);
  question.axes.micros = {1};
  question.axes.recomputes = {{}};
  question.axes.moments = {MomentFormat::fp32};
  question.axes.computes = {DType::bf16};
  question.machine.kind = DeviceKind::cpu;
  question.axes.offloads = {Offload::from("cpu")};
  EXPECT_THAT(error_of([&] { candidates(question); }),
              HasSubstr("states of a CPU are in host memory anyway; give --offload none, or nvme"));
  question.axes.offloads = {Offload::from("none")};
  EXPECT_THAT(answer_training(question, 1).shortfall,
              ::testing::Contains(HasSubstr("optimizer states in files help: --offload nvme")));
  question.axes.offloads = {Offload::from("none"), Offload::from("nvme")};
  const TrainingAnswer answer = answer_training(question, 1);
  ASSERT_EQ(answer.rows.size(), 1U);
  const Candidate& best = answer.rows.front().ranked.candidate;
  EXPECT_EQ(best.offload, Offload{.optimizer = Tier::file});
  EXPECT_THAT(text_of(answer),
              HasSubstr("row 1: optimizer states are in a rank's file of 1.39 GiB"));
  const auto row = json_of(answer)["rows"][0];
  EXPECT_EQ(row["offload_optimizer"], "nvme");
  EXPECT_EQ(row["offload_param"], "none");
  EXPECT_GE(row["file"]["optimizer"].get<std::int64_t>(), 12 * question.model.parameter_count());
  EXPECT_EQ(row["memory"]["optimizer"], 0);
  const auto written = written_configuration(question, best)["zero_optimization"];
  EXPECT_EQ(written["offload_optimizer"]["device"], "nvme");
  EXPECT_EQ(written["offload_optimizer"]["nvme_path"], kFolderToName);
  EXPECT_FALSE(written.contains("offload_param"));
}

// 0.25 GB of gradients, and windows of full parameters, stay in memory.
TEST(TrainingAnswers, OfferFilesForTheParametersOfCpusAtStage3) {
  TrainingQuestion question = question_about("gpt2-124m", 1, 1, 1'000'000'000, 64);
  question.machine.kind = DeviceKind::cpu;
  question.axes.micros = {1};
  question.axes.recomputes = {{}};
  question.axes.moments = {MomentFormat::fp32};
  question.axes.computes = {DType::bf16};
  const Offload all = Offload::from("nvme-all");
  EXPECT_EQ(all, (Offload{Tier::file, Tier::file}));
  question.axes.offloads = {all};
  const TrainingAnswer answer = answer_training(question, 1);
  ASSERT_EQ(answer.rows.size(), 1U);
  const PlannedRow& best = answer.rows.front();
  EXPECT_EQ(best.ranked.candidate.stage, 3) << "of one rank too";
  EXPECT_EQ(answer.candidates, 1);
  EXPECT_LE(std::abs(best.closed_error()), 0.01);
  EXPECT_THAT(text_of(answer), HasSubstr("row 1: optimizer states and parameters are in a rank's "
                                         "file of "));
  const auto row = json_of(answer)["rows"][0];
  EXPECT_EQ(row["offload_param"], "nvme");
  // All blocks: the embedding stays whole, for its window would take as much.
  EXPECT_GE(row["file"]["parameters"].get<std::int64_t>(),
            2 * 6 * question.model.parameter_count() / 10);
  const auto written = written_configuration(question, best.ranked.candidate)["zero_optimization"];
  EXPECT_EQ(written["offload_param"]["device"], "nvme");
  EXPECT_EQ(written["offload_param"]["nvme_path"], kFolderToName);
  EXPECT_TRUE(written.contains("offload_optimizer"));
  // Where states in files are not enough, parameters there are what is advised.
  question.axes.offloads = {Offload{}};
  question.machine.memory = best.bytes + (std::int64_t{10} << 20);
  EXPECT_THAT(answer_training(question, 1).shortfall,
              ::testing::Contains(HasSubstr(
                  "optimizer states and parameters in files help: --offload nvme-all --stage 3")));
  question.machine.memory = 100'000'000;
  EXPECT_THAT(answer_training(question, 1).shortfall,
              ::testing::Contains(HasSubstr("(--offload nvme-all) are not enough")));
  question.axes.offloads = {all};
  question.axes.stages = {0, 2};
  EXPECT_THAT(error_of([&] { candidates(question); }),
              HasSubstr("parameters are in files at stage 3 only; give --stage 3"));
}

// States in memory cost nothing, so they stand first where they fit.
TEST(Ranking, TakesFilesLast) {
  TrainingQuestion question = question_about(kSmallModel, 1, 1, 4'000'000'000, 64);
  question.machine.kind = DeviceKind::cpu;
  question.axes.offloads = {Offload::from("nvme"), Offload::from("none")};
  const Ranking ranking = ranking_of(question);
  EXPECT_FALSE(ranking.fitting.front().candidate.offload.uses(Tier::file));
  EXPECT_TRUE(std::ranges::any_of(
      ranking.fitting, [](const Ranked& each) { return each.candidate.offload.uses(Tier::file); }));
}

}  // namespace
}  // namespace zero::testing
