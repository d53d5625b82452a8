// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
// Runs on whatever ranks come: how many take part, and what a start tells of the one before.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/config/train_config.h"
#include "launch/process/configuration_error.h"
#include "launch/process/exit_status.h"
#include "launch/telemetry/run_log.h"
#include "launch/train/elastic_ranks.h"
#include "tests/launch/config_with.h"
#include "tests/launch/cut_run.h"

namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Overrides kElastic{"run.elastic=true", "train_batch_size=24",
                         "train_micro_batch_size_per_gpu=1"};

/// The ranks of `came` that take part with these changes to an elastic run of 24 sequences a step.
int taking_part(int came, const Overrides& more = {}) {
  const Configuration values = Configuration::from_json(
      parse_json_text(R"({"data": {"train": "a.bin"}})", "c.json"), "c.json", plus(kElastic, more));
  return elastic_ranks(values, came);
}

TEST(Elastic, TheLargestPowerOfTwoThatFitsTakesPart) {
  EXPECT_EQ(taking_part(1), 1);
  EXPECT_EQ(taking_part(2), 2);
  EXPECT_EQ(taking_part(3), 2);
  EXPECT_EQ(taking_part(6), 4);
  EXPECT_EQ(taking_part(8), 8);
  EXPECT_EQ(taking_part(15), 8);
  EXPECT_EQ(taking_part(6, {"run.elastic=false"}), 6);
  // 24 sequences are no 16 x 1, nor 8 x 2 or 4 x 12.
  EXPECT_EQ(taking_part(100), 8);
  EXPECT_EQ(taking_part(15, {"train_micro_batch_size_per_gpu=2"}), 4);
  EXPECT_EQ(taking_part(15, {"train_micro_batch_size_per_gpu=12"}), 2);
  // Two tensor ranks read the same sequences.
  EXPECT_EQ(taking_part(31, {"mesh.tensor=2"}), 16);
  EXPECT_EQ(taking_part(7, {"mesh.tensor=2", "mesh.shard=2", "mesh.replicate=-1"}), 4);
  // Nothing fits: the mesh is refused for the largest.
  EXPECT_EQ(taking_part(7, {"mesh.tensor=3"}), 4);
}

TEST(Elastic, TheBatchStays) {
  for (const int world : {1, 2, 4, 8}) {
    const TrainConfig config = config_with(kElastic, world);
    EXPECT_EQ(config.batch, (Batch{24, 1, 24 / world}));
    EXPECT_EQ(config.mesh.shard, world);
  }
}

TEST(Elastic, KeysThatWouldTieARunToItsRanksAreRefused) {
  const auto refused = [](const Overrides& overrides) {
    return refusal_with(plus(kElastic, overrides), 2);
  };
  EXPECT_THAT(refused({"train_batch_size=null"}),
              AllOf(HasSubstr("c.json: run.elastic is true, but train_batch_size is not given, so "
                              "that a step would depend on the ranks that come; give it a number"),
                    HasSubstr("or leave run.elastic out")));
  EXPECT_THAT(refused({"train_micro_batch_size_per_gpu=\"auto\""}),
              HasSubstr("but train_micro_batch_size_per_gpu is not given"));
  EXPECT_THAT(refused({"gradient_accumulation_steps=12"}),
              HasSubstr("but gradient_accumulation_steps is 12, which follows from the ranks that "
                        "come; leave it out"));
  EXPECT_THAT(refused({"mesh.tensor=-1", "mesh.shard=1"}),
              HasSubstr("but mesh.tensor is -1, and steps round differently"));
  EXPECT_THAT(refused({"mesh.shard=2"}),
              HasSubstr("but mesh.replicate is 1 and mesh.shard is 2, which fit one number of "
                        "ranks alone; give one of them -1"));
  EXPECT_THAT(refusal_with({"elasticity.enabled=true"}),
              HasSubstr("run.elastic has any number of ranks take part"));
}

/// What a start of 7 ranks, of which 4 would take part, says of a file that has `body` too.
std::string refusal_of_seven(const std::string& body) {
  const std::string text =
      R"({"model": "gpt2-124m", "data": {"train": "a.bin"}, "run": {"elastic": true}, "train_batch_size": 24, )";
  return error_of([&] {
    Refusals refusals;
    Configuration values = Configuration::from_json(parse_json_text(text + body + "}", "c.json"),
                                                    "c.json", {}, &refusals);
    make_train_config(std::move(values), 7, 0, std::move(refusals));
  });
}

// All ranks that came read it, and 24 sequences fit neither 7 ranks nor their mesh.
TEST(Elastic, AWrongKeyIsTheOnlyRefusal) {
  const std::string micro = R"("train_micro_batch_size_per_gpu": 1, )";
  EXPECT_THAT(refusal_of_seven(micro + R"("colour": 3)"),
              AllOf(HasSubstr("c.json: unknown key \"colour\""), Not(HasSubstr("refusals"))));
  EXPECT_THAT(refusal_of_seven(micro + R"("mesh": {"tensor": 2, "check_every": -1})"),
              AllOf(HasSubstr("c.json: mesh.check_every: found -1"), Not(HasSubstr("refusals"))));
  // What does not fit the ranks that would take part is refused along.
  EXPECT_THAT(refusal_of_seven(micro + R"("mesh": {"tensor": 3, "check_every": -1})"),
              HasSubstr("c.json: 2 refusals"));
  // Without run.elastic, as the answer has it, all ranks would take part.
  EXPECT_THAT(refusal_of_seven(R"("gradient_accumulation_steps": 1)"),
              AllOf(HasSubstr("run.elastic=false"), HasSubstr("world 7")));
}

TEST(Elastic, AStartHasItsFirstRanksAlone) {
  const Start start = of_first_ranks({.rank = 1, .world = 6, .local_world = 3, .address = {}}, 4);
  EXPECT_EQ(start.world, 4);
  EXPECT_EQ(start.local_world, 3);
  EXPECT_EQ(of_first_ranks(start, 2).local_world, 2);
  EXPECT_EQ(of_first_ranks(start, 4).world, 4);
  EXPECT_EQ(
      elastic_line(6, 4),
      "run.elastic: 6 ranks came, and the first 4 take part, the most that are a power of two "
      "and fit train_batch_size and the mesh; the others end with status 0\n");
}

/// Steps on 8 ranks, then 4, then 8, as after faults that take hosts and give them back.
TEST(Elastic, EightFourAndEightRanksHaveTheBitsOfAnUndisturbedRun) {
  const Overrides elastic{"run.elastic=true"};
  const CutRun whole;
  EXPECT_EQ(whole.start({.world = 2, .overrides = elastic}).status, 0);
  const CutRun cut;
  for (const int world : {8, 4, 8, 1}) {
    const bool last = world == 1;
    const Overrides more = last ? elastic : plus(elastic, {"run.stop_after=1"});
    const Ended ended = cut.start({.world = world, .overrides = more, .started = kLongAgo});
    EXPECT_EQ(ended.status, 0);
    if (!last) {
      EXPECT_THAT(ended.out, HasSubstr("ended by run.stop_after after step"));
    }
  }
  EXPECT_EQ(cut.results(), whole.results());
}

Environment only_variable(const std::string& variable, const std::string& value) {
  return [=](const std::string& name) {
    return name == variable ? std::optional(value) : std::nullopt;
  };
}

TEST(Restart, IsToldByTheLauncherThatCountsIt) {
  const TinyRun run;
  const std::string folder = run.folder().path();
  const auto told = [&](const std::string& variable, const std::string& value) {
    return restart_text(only_variable(variable, value), folder);
  };
  EXPECT_EQ(told("ZERO_RESTART", "2: status 137 after 41 s\t" + folder),
            "restart 2: status 137 after 41 s");
  EXPECT_EQ(told("ZERO_RESTART", "1: a\nb\x1b[31m\t" + folder), "restart 1: a?b?[31m");
  EXPECT_EQ(told("TORCHELASTIC_RESTART_COUNT", "3"), "restart 3 by torchrun");
  EXPECT_EQ(told("SLURM_RESTART_COUNT", "1"), "restart 1 by Slurm");
  EXPECT_EQ(told("TORCHELASTIC_RESTART_COUNT", "0"), "");
  EXPECT_EQ(told("ZERO_OTHER", "1"), "");
}

// A shell or a job hands its variables down to whatever it starts.
TEST(Restart, OfAnotherFolderIsNoneOfThisRun) {
  const TinyRun run;
  const TinyRun other;
  const std::string folder = run.folder().path();
  const auto told = [&](const std::string& of, const std::string& mine) {
    return restart_text(only_variable("ZERO_RESTART", "1: a\t" + of), mine);
  };
  EXPECT_EQ(told(folder, folder), "restart 1: a");
  std::filesystem::create_directory_symlink(folder, other.folder().path("link"));
  EXPECT_EQ(told(other.folder().path("link"), folder), "restart 1: a");
  EXPECT_EQ(told(other.folder().path(), folder), "");
  EXPECT_EQ(told(folder + "/none", folder), "");
  EXPECT_EQ(told(folder, ""), "");
  EXPECT_EQ(told("", ""), "");
  EXPECT_EQ(restart_text(only_variable("ZERO_RESTART", "1: a"), folder), "");
}

TEST(ConfigurationErrors, AreTheOnesThatComeAgain) {
  EXPECT_EQ(exit_status_of(Error("x")), exit_status::kFault);
  EXPECT_EQ(exit_status_of(AgreedError("x")), exit_status::kFault);
  EXPECT_EQ(exit_status_of(ConfigurationError("x")), exit_status::kConfiguration);
  EXPECT_EQ(checking_configuration([] { return 7; }), 7);
  EXPECT_THROW(checking_configuration([] { fail("no"); }), ConfigurationError);
}

/// What agree() throws on `ranks` ranks of which those that `fails` says throw a configuration's
/// error.
std::vector<int> agreed_statuses(int ranks, const std::function<bool(int)>& fails) {
  std::vector<int> statuses(static_cast<std::size_t>(ranks));
  local::run(ranks, [&](Communicator& communicator) {
    try {
      agree(communicator, *cpu::open(), "test", [&] {
        checking_configuration([&] { ZERO_CHECK(!fails(communicator.rank()), "refused"); });
      });
    } catch (const AgreedError& error) {
      statuses[static_cast<std::size_t>(communicator.rank())] = exit_status_of(error);
    }
  });
  return statuses;
}

TEST(ConfigurationErrors, OfAllRanksAreOnesOfTheJobAndOfOneHostAreFaults) {
  EXPECT_THAT(agreed_statuses(3, [](int) { return true; }), ::testing::Each(78));
  EXPECT_THAT(agreed_statuses(3, [](int rank) { return rank == 1; }), ::testing::Each(1));
  EXPECT_THAT(agreed_statuses(3, [](int) { return false; }), ::testing::Each(0));
}

}  // namespace
}  // namespace zero::testing
