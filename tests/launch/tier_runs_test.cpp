// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "collectives/backends.h"
#include "launch/process/quantity.h"
#include "launch/train/memory_fit.h"
#include "launch/train/plan.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/device/restricted_thread.h"
#include "tests/launch/config_with.h"
#include "tests/launch/cut_run.h"
#include "tests/launch/tier_keys.h"

// What plans and runs say of files of model states, and that these change no result.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// The plan of a run with the keys of both lists.
Plan planned(const std::vector<std::string>& keys, const std::vector<std::string>& more = {}) {
  return make_plan(config_with(plus(keys, more)), BackendKind::local);
}

TEST(TierPlans, TellFilesBesideMemory) {
  const Plan memory = planned({"run.device=cpu", "run.threads=1", "bf16.enabled=true"});
  const Plan file = planned(nvme_keys("/nowhere"), {"bf16.enabled=true"});
  const auto bytes = [](const nlohmann::json& json, const char* name) {
    return json.value(name, std::int64_t{0});
  };
  const auto states = memory.json()["memory"]["optimizer"]["planned"].get<std::int64_t>();
  EXPECT_TRUE(memory.json()["file"].empty());
  EXPECT_GE(bytes(file.json()["file"], "optimizer"), states);  // in whole blocks of the disk
  EXPECT_EQ(file.json()["file"].size(), 1U);
  EXPECT_EQ(file.json()["memory"]["optimizer"]["planned"], 0);
  EXPECT_EQ(file.json()["live"]["peak"]["bytes"]["optimizer"], 0);
  EXPECT_THAT(file.text(), AllOf(HasSubstr("in files, beside memory\n  optimizer "),
                                 HasSubstr(fmt::format("{} bytes, read and written in a step\n",
                                                       bytes(file.json()["file"], "optimizer")))));
  EXPECT_THAT(memory.text(), Not(HasSubstr("in files")));
}

TEST(TierPlans, TellShardsInFilesBesideMemory) {
  const auto of = [](const Plan& plan, const char* where, const char* what) {
    const nlohmann::json bytes = plan.json()[where];
    if (!bytes.contains(what)) return std::int64_t{0};
    return (bytes[what].is_object() ? bytes[what]["planned"] : bytes[what]).get<std::int64_t>();
  };
  std::vector<std::string> in_memory = shard_keys("/nowhere");
  in_memory.emplace_back("zero_optimization.offload_param.device=none");
  for (const char* const bf16 : {"bf16.enabled=true", "bf16.enabled=false"}) {
    const Plan memory = planned(in_memory, {bf16});
    const Plan shards = planned(shard_keys("/nowhere"), {bf16});
    const Plan all = planned(all_keys("/nowhere"), {bf16});
    EXPECT_EQ(of(memory, "file", "parameters"), 0);
    EXPECT_GT(of(shards, "file", "parameters"), 0);
    EXPECT_EQ(of(shards, "file", "optimizer"), 0);
    EXPECT_EQ(of(all, "file", "parameters"), of(shards, "file", "parameters"));
    EXPECT_GT(of(all, "file", "optimizer"), 0);
    EXPECT_LT(of(shards, "memory", "parameters"), of(memory, "memory", "parameters") / 2);
    EXPECT_EQ(of(shards, "memory", "optimizer"), of(memory, "memory", "optimizer"));
    EXPECT_EQ(of(all, "memory", "optimizer"), 0);
    const Plan kept =
        planned(shard_keys("/nowhere"), {bf16, "zero_optimization.offload_param.max_in_cpu=1e9"});
    EXPECT_TRUE(kept.json()["file"].empty());
    EXPECT_EQ(kept.memory, memory.memory);
  }
}

TEST(TierPlans, OfferFilesToARunThatDoesNotFit) {
  const auto refusal = [](const std::vector<std::string>& keys) {
    const TrainConfig config = config_with(plus(keys, {"run.memory_limit=100KiB"}));
    const RankPlans plans = plan_ranks(config, BackendKind::local);
    return error_of([&] { check_memory_limit(config, BackendKind::local, plans); });
  };
  const std::vector<std::string> wide{"model.width=512", "bf16.enabled=true",
                                      "zero_optimization.offload_optimizer.buffer_size=4096"};
  EXPECT_THAT(refusal(plus({"run.device=cpu", "run.threads=1"}, wide)),
              HasSubstr("zero_optimization.offload_optimizer.device \"nvme\": "));
  EXPECT_THAT(refusal(plus(nvme_keys("/nowhere"), wide)), Not(HasSubstr("\"nvme\": ")));
  const std::string shards = "zero_optimization.offload_param.device \"nvme\": ";
  // Of two blocks the windows would take as much as the parameters.
  const std::vector<std::string> stage3 =
      plus(wide, {"zero_optimization.stage=3", "model.layers=8"});
  EXPECT_THAT(refusal(plus({"run.device=cpu", "run.threads=1"}, stage3)),
              HasSubstr("zero_optimization.offload_optimizer.device \"nvme\" with " + shards));
  EXPECT_THAT(refusal(plus(nvme_keys("/nowhere"), stage3)),
              AllOf(HasSubstr(shards), Not(HasSubstr("with " + shards))));
  EXPECT_THAT(refusal(plus(all_keys("/nowhere"), wide)), Not(HasSubstr("\"nvme\": ")));
}

TEST(TierRuns, EndInTheSameStateWithTheFilesPlanned) {
  const CutRun run;
  const Overrides plain{"run.checkpoint.folder=null", "run.steps=3"};
  ASSERT_EQ(run.start({.world = 2, .overrides = plain}).status, 0);
  const nlohmann::json expected = run.tiny().log().back();
  EXPECT_TRUE(expected["file"]["used"].empty());
  const std::string folder = run.tiny().folder().path();
  const Overrides in_file = plus(plain, nvme_keys(folder));
  const Ended ended = run.start({.world = 2, .overrides = in_file});
  const nlohmann::json last = run.tiny().log().back();
  EXPECT_EQ(last["state_hash"], expected["state_hash"]);
  EXPECT_EQ(last["validation_loss"], expected["validation_loss"]);
  EXPECT_EQ(last["plan_exact"], true);
  EXPECT_EQ(last["file"]["planned"], last["file"]["used"]);
  EXPECT_GT(last["file"]["used"]["optimizer"].get<std::int64_t>(), 0);
  double waited = last["tiers"]["seconds_behind_last_step"];
  EXPECT_GE(waited, 0);
  for (const nlohmann::json& line : run.tiny().log()) waited += line.value("tier_seconds", 0.0);
  EXPECT_GT(waited, 0);
  EXPECT_NEAR(last["tiers"]["seconds"].get<double>(), waited, 1e-6);
  EXPECT_FALSE(expected.contains("tiers"));
  const std::string size = size_text(last["file"]["planned"]["optimizer"].get<std::int64_t>());
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("a rank's optimizer states, " + size + ", are in its file\n"),
                    HasSubstr("a rank's file, " + size + " in " + folder + ", is moved through "),
                    ContainsRegex("\nwaited [0-9.]+ s for tiers, of them [0-9.]+ s behind the "
                                  "last step\n"),
                    HasSubstr("\n  in files, beside memory\n")));
  for (const std::string& name : run.tiny().folder().names()) {
    EXPECT_FALSE(name.starts_with(".")) << name;
  }
}

TEST(TierRuns, WithShardsInFilesEndInTheSameStateWithTheFilesPlanned) {
  const CutRun run;
  const Overrides plain{"run.checkpoint.folder=null", "run.steps=3", "bf16.enabled=true"};
  ASSERT_EQ(run.start({.world = 2, .overrides = plain}).status, 0);
  const nlohmann::json expected = run.tiny().log().back();
  const std::string folder = run.tiny().folder().path();
  for (const Overrides& keys : {shard_keys(folder), all_keys(folder)}) {
    const Ended ended = run.start({.world = 2, .overrides = plus(plain, keys)});
    const nlohmann::json last = run.tiny().log().back();
    EXPECT_EQ(last["state_hash"], expected["state_hash"]);
    EXPECT_EQ(last["validation_loss"], expected["validation_loss"]);
    EXPECT_EQ(last["plan_exact"], true);
    EXPECT_EQ(last["file"]["planned"], last["file"]["used"]);
    EXPECT_GT(last["file"]["used"]["parameters"].get<std::int64_t>(), 0);
    const nlohmann::json& file = last["file"]["planned"];
    const auto shards = file["parameters"].get<std::int64_t>();
    const std::int64_t all = shards + file.value("optimizer", std::int64_t{0});
    EXPECT_THAT(ended.out, AllOf(ContainsRegex("[1-9][0-9] % of a rank's parameters, " +
                                               size_text(shards) + ", are in its file\n"),
                                 HasSubstr("a rank's file, " + size_text(all) + " in " + folder)));
    const std::string moved = " is moved through ";
    EXPECT_EQ(ended.out.find(moved), ended.out.rfind(moved)) << "told once";
  }
  const Ended kept =
      run.start({.world = 2,
                 .overrides = plus(plus(plain, shard_keys(folder)),
                                   {"zero_optimization.offload_param.max_in_cpu=1e9"})});
  EXPECT_THAT(kept.out, HasSubstr("no parameters are in files: each unit is small or whole, or "
                                  "fits into zero_optimization.offload_param.max_in_cpu, "
                                  "1000000000"));
  EXPECT_EQ(run.tiny().log().back()["state_hash"], expected["state_hash"]);
}

TEST(TierRuns, WithoutRoomEndOnEveryRankBeforeTheFirstStep) {
  const CutRun run;
  MemoryFiles full;
  full.set_free_bytes(1000);
  const std::string folder = run.tiny().folder().path();
  EXPECT_THAT(run.refusal({.world = 4, .overrides = nvme_keys(folder), .disk = &full}),
              AllOf(HasSubstr("nvme_path: " + folder +
                              " has room for 1.0 kB, and the optimizer "
                              "states of 4 rank(s) take "),
                    Not(HasSubstr("[rank "))));
  EXPECT_FALSE(std::filesystem::exists(run.folder() + "/step_00000001"));
}

TEST(TierRuns, InMemoryFoldersSaySo) {
  if (!has_memory_folder()) GTEST_SKIP() << "no file system in memory at " << kMemoryFolder;
  const CutRun run;
  const Ended ended = run.start({.overrides = plus(nvme_keys(kMemoryFolder), {"run.steps=1"})});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("warning: zero_optimization.offload_optimizer.nvme_path: "
                                   "/dev/shm is a file system in memory"));
}

// A checkpoint's queue is another, which may move its files in another way.
TEST(TierRuns, SayHowTheFileOfStatesIsMovedAndNotThoseOfCheckpoints) {
  const CutRun run;
  const std::string folder = run.tiny().folder().path();
  EXPECT_EQ(on_own_thread([&] {
              constexpr std::uint32_t kDepth = 4096;
              ASSERT_TRUE(refuse({SYS_io_uring_setup, EPERM, 0, kDepth}));
              const Ended ended = run.start(
                  {.overrides = plus(nvme_keys(folder), {"run.steps=1", "aio.queue_depth=4096"})});
              EXPECT_THAT(ended.out,
                          HasSubstr(" in " + folder + ", is moved through pwrite: no io_uring: "));
            }),
            "no error");
}

TEST(TierRuns, SayWhichShareOfTheStatesIsInFiles) {
  const auto said = [](const std::string& ratio) {
    const CutRun run;
    return run
        .start({.overrides = plus(nvme_keys(run.tiny().folder().path()),
                                  {"run.steps=1", "bf16.enabled=true",
                                   "zero_optimization.offload_optimizer.ratio=" + ratio})})
        .out;
  };
  EXPECT_THAT(said("0.001"), HasSubstr("no optimizer states are in files: no unit fits into "
                                       "zero_optimization.offload_optimizer.ratio, 0.001"));
  EXPECT_THAT(said("0.9"),
              ContainsRegex("[1-8][0-9] % of a rank's optimizer states, .* are in its file"));
}

// A resume may change where states are.
TEST(TierRuns, GoOnFromEachOthersCheckpoints) {
  const CutRun whole;
  ASSERT_EQ(whole.start({.world = 2}).status, 0);
  for (const bool first_in_file : {false, true}) {
    const CutRun cut;
    const Overrides keys = nvme_keys(cut.tiny().folder().path());
    const Overrides half{"run.steps=3"};
    cut.start({.world = 2, .overrides = first_in_file ? plus(keys, half) : half});
    cut.start({.world = 1, .overrides = first_in_file ? Overrides{} : keys});
    EXPECT_EQ(cut.tiny().log().back()["state_hash"], whole.tiny().log().back()["state_hash"]);
  }
}

}  // namespace
}  // namespace zero::testing
