// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <functional>

#include "collectives/backends.h"
#include "launch/train/file_checks.h"
#include "launch/train/memory_fit.h"
#include "launch/train/plan.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/device/restricted_thread.h"
#include "tests/launch/config_with.h"
#include "tests/launch/cut_run.h"

// What a host must have for files of optimizer states, and what plans and runs say of these.
namespace zero::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kMemoryFolder = "/dev/shm";

std::vector<std::string> nvme_keys(const std::string& folder) {
  return {"run.device=cpu", "run.threads=1", "zero_optimization.offload_optimizer.device=nvme",
          "zero_optimization.offload_optimizer.nvme_path=" + folder};
}

bool has_memory_folder() {
  std::error_code error;
  return std::filesystem::is_directory(kMemoryFolder, error) &&
         medium_of(kMemoryFolder) == Medium::memory;
}

TEST(TierBudget, KnowsWhatFoldersLieOn) {
  EXPECT_EQ(medium_of_type(TMPFS_MAGIC), Medium::memory);
  EXPECT_EQ(medium_of_type(RAMFS_MAGIC), Medium::memory);
  EXPECT_EQ(medium_of_type(NFS_SUPER_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(SMB_SUPER_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(CIFS_SUPER_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(CEPH_SUPER_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(FUSE_SUPER_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(V9FS_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(AFS_SUPER_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(AFS_FS_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(EXT4_SUPER_MAGIC), Medium::disk);
  EXPECT_EQ(medium_of_type(XFS_SUPER_MAGIC), Medium::disk);
  EXPECT_EQ(medium_of_type(OVERLAYFS_SUPER_MAGIC), Medium::disk);
  EXPECT_EQ(medium_of("/nowhere/at/all"), Medium::disk);
}

TEST(TierBudget, IsThatOfAllRanksOfAHost) {
  MemoryFiles disk;
  disk.make_folder("/fast");
  disk.set_free_bytes(5'000'000);
  const TrainConfig config = config_with(nvme_keys("/fast"));
  const auto refusal = [&](const std::vector<TierNeeds>& ranks) {
    return error_of([&] { check_tier_budget(config, ranks, disk); });
  };
  const TierNeeds large{.file_bytes = 4'000'000};
  const TierNeeds small{.file_bytes = 300'000};
  EXPECT_EQ(refusal({small, large, small, small}), "no error");
  EXPECT_EQ(refusal({large, small, small, {.file_bytes = 3'400'000}}),
            "zero_optimization.offload_optimizer.nvme_path: /fast has room for 5.0 MB, and the "
            "optimizer states of 4 rank(s) take 8.0 MB: 3.0 MB are missing; free space there, "
            "give another folder, use more hosts, or keep a part of the states in memory "
            "(zero_optimization.offload_optimizer.ratio)");
  EXPECT_THAT(refusal({{.memory_bytes = 1}, {.memory_bytes = std::int64_t{1} << 50}}),
              AllOf(HasSubstr("out of memory before the start"), HasSubstr("2 rank(s)"),
                    HasSubstr("smaller windows of states"), Not(HasSubstr("states on NVMe"))));
  const TrainConfig in_memory = config_with({"run.device=cpu", "run.threads=1"});
  const TierNeeds huge{.memory_bytes = std::int64_t{1} << 50};
  EXPECT_THAT(error_of([&] { check_tier_budget(in_memory, std::span(&huge, 1), disk); }),
              HasSubstr("optimizer states on NVMe or a smaller batch take less"));
}

// Beyond the limit the system would end the process with a signal.
TEST(TierBudget, KnowsTheLongestFileThatAProcessMayWrite) {
  MemoryFiles disk;
  disk.make_folder("/fast");
  const TrainConfig config = config_with(nvme_keys("/fast"));
  const FileSizeLimit limit(3'000'000);
  const std::vector<TierNeeds> ranks(8, {.file_bytes = 3'000'000});
  EXPECT_THAT(check_tier_budget(config, ranks, disk), IsEmpty());
  const std::vector<TierNeeds> one_long{{.file_bytes = 1000}, {.file_bytes = 4'000'000}};
  EXPECT_THAT(error_of([&] { check_tier_budget(config, one_long, disk); }),
              HasSubstr("a rank's file takes 4.0 MB, and a process may write files of 3.0 MB at "
                        "most (RLIMIT_FSIZE, ulimit -f); raise that limit"));
}

TEST(TierBudget, CountsFilesInMemoryAsMemory) {
  if (!has_memory_folder()) GTEST_SKIP() << "no file system in memory at " << kMemoryFolder;
  const TrainConfig config = config_with(nvme_keys(kMemoryFolder));
  const std::vector<TierNeeds> two(2, {.file_bytes = 4096});
  EXPECT_THAT(check_tier_budget(config, two, files::disk()),
              ElementsAre(AllOf(HasSubstr("nvme_path: /dev/shm is a file system in memory"),
                                HasSubstr("take 8.00 KiB of this host's memory"))));
  const std::vector<TierNeeds> all{{.file_bytes = std::int64_t{1} << 50}};
  EXPECT_THAT(error_of([&] { check_tier_budget(config, all, files::disk()); }),
              HasSubstr("out of memory before the start"));
}

TEST(TierBudget, FoldersThatAreNotThereEndTheRun) {
  const Scratch folder;
  const std::string file = folder.write("a", "b");
  const auto refusal = [](const std::string& path) {
    return error_of([&] { check_files(config_with(nvme_keys(path))); });
  };
  EXPECT_THAT(refusal(file), EndsWith("nvme_path: " + file +
                                      " is no folder; give a folder, on a "
                                      "local disk of each host, that all ranks may write to"));
  const std::string none = folder.path("none");
  EXPECT_THAT(refusal(none),
              HasSubstr("nvme_path: " + none + " is not there; make it on the disk"));
  EXPECT_THAT(refusal(none), EndsWith("(mkdir -p " + none + "), or give another folder"));
  EXPECT_EQ(error_of([&] { check_files(config_with(nvme_keys(folder.path()))); }), "no error");
}

/// Two hosts, and the ranks of four that run on each.
using TwoHosts = std::array<HostIdentity, 2>;
const TwoHosts kNodes{HostIdentity{"node1", "boot1"}, HostIdentity{"node2", "boot2"}};
std::size_t host_of(const Communicator& ranks) { return ranks.rank() < 2 ? 0 : 1; }

/// What check_folders_apart() says to four ranks of two hosts with a folder each.
std::vector<std::string> apart(const std::string& first, const std::string& second,
                               files::FileSystem& disk, const TwoHosts& hosts = kNodes) {
  std::vector<std::string> said(4);
  local::run(4, [&](Communicator& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    const std::size_t host = host_of(ranks);
    said[rank] = error_of([&] {
      check_folders_apart(ranks, *cpu::open(), host == 0 ? first : second, hosts[host], disk);
    });
  });
  return said;
}

TEST(TierBudget, FoldersThatHostsShareEndEveryRank) {
  const Scratch one;
  const Scratch two;
  const auto all = [](const auto& what) { return ElementsAre(what, what, what, what); };
  EXPECT_THAT(apart(one.path(), two.path(), files::disk()), all("no error"));
  const std::string shared = "zero_optimization.offload_optimizer.nvme_path: " + one.path() +
                             " is one folder of the hosts ";
  EXPECT_THAT(apart(one.path(), one.path(), files::disk()),
              all(AllOf(HasSubstr(shared), HasSubstr("node1"), HasSubstr("node2"),
                        HasSubstr("a local disk of each host"))));
  EXPECT_THAT(one.names(), IsEmpty());
  EXPECT_THAT(two.names(), IsEmpty());
  const std::string none = one.path("none");
  EXPECT_THAT(apart(none, none, files::disk()), all(HasSubstr(none)));
}

// Clones of a machine have its name; containers on one machine have names of their own.
TEST(TierBudget, HostsAreToldApartByTheirBootsAndByNamesWhereThereIsNone) {
  const Scratch folder;
  const auto said = [&](const HostIdentity& one, const HostIdentity& other) {
    return apart(folder.path(), folder.path(), files::disk(), {one, other});
  };
  EXPECT_THAT(said({"node", "boot1"}, {"node", "boot2"}),
              Each(HasSubstr(folder.path() + " is one folder of several hosts named node")));
  EXPECT_THAT(said({"box1", "boot"}, {"box2", "boot"}), Each("no error"));
  EXPECT_THAT(said({"node1", ""}, {"node2", ""}), Each(HasSubstr("of the hosts node")));
  EXPECT_THAT(said({"node", ""}, {"node", ""}), Each("no error"));
  EXPECT_THAT(folder.names(), IsEmpty());
}

/// What agree_on_tier_budget() says to four ranks of two hosts with a folder each and needs of
/// their own: warnings, or the error.
std::vector<std::vector<std::string>> agreed(const std::array<std::string, 2>& folders,
                                             const std::array<TierNeeds, 4>& needs,
                                             files::FileSystem& disk) {
  std::vector<std::vector<std::string>> said(needs.size());
  local::run(4, [&](Communicator& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    const std::size_t host = host_of(ranks);
    const TrainConfig config = config_with(nvme_keys(folders[host]));
    const std::string error = error_of([&] {
      said[rank] =
          agree_on_tier_budget(config, needs[rank], ranks, *cpu::open(), disk, kNodes[host]);
    });
    if (error != "no error") said[rank] = {error};
  });
  return said;
}

TEST(TierBudget, IsThatOfTheRanksOfEachHost) {
  MemoryFiles disk;
  for (const char* const folder : {"/one", "/two"}) disk.make_folder(folder);
  disk.set_free_bytes(20'000);
  const auto said = [&](std::int64_t last) {
    const TierNeeds small{.file_bytes = 4096};
    return agreed({"/one", "/two"}, {small, small, small, TierNeeds{.file_bytes = last}}, disk);
  };
  EXPECT_THAT(said(12'288), Each(IsEmpty()));
  EXPECT_THAT(said(16'384),
              Each(ElementsAre(AllOf(HasSubstr("[rank 2] "), HasSubstr("/two has room for 20.0 kB"),
                                     HasSubstr("states of 2 rank(s) take 20.5 kB")))));
}

TEST(TierBudget, WarnsEveryRankOfEachHostOnce) {
  if (!has_memory_folder()) GTEST_SKIP() << "no file system in memory at " << kMemoryFolder;
  const Scratch one;
  const TierNeeds needs{.file_bytes = 4096};
  for (const std::vector<std::string>& warnings :
       agreed({one.path(), kMemoryFolder}, {needs, needs, needs, needs}, files::disk())) {
    EXPECT_EQ(std::ranges::count_if(warnings,
                                    [](const std::string& text) {
                                      return text.starts_with(
                                          "host node2: zero_optimization.offload_optimizer."
                                          "nvme_path: /dev/shm is a file system in memory");
                                    }),
              1);
  }
}

// Hosts without a file wait for nothing.
TEST(TierBudget, FoldersWithoutAFileMayBeShared) {
  const Scratch shared;
  EXPECT_THAT(agreed({shared.path(), shared.path()}, {}, files::disk()), Each(IsEmpty()));
  EXPECT_THAT(
      agreed({shared.path(), shared.path()}, {TierNeeds{.file_bytes = 4096}}, files::disk()),
      Each(ElementsAre(HasSubstr("is one folder of the hosts "))));
}

// Nor do they leave a rank waiting where a disk fails.
TEST(TierBudget, DisksThatFailWhileFoldersAreComparedEndEveryRank) {
  for (const char* const call : {"create", "list"}) {
    const Scratch one;
    const Scratch two;
    Faults faults("disk on fire");
    faults.fail_at(call, 1);
    HookedDisk disk(std::ref(faults));
    const std::vector<std::string> said = apart(one.path(), two.path(), disk);
    EXPECT_THAT(said, Each(HasSubstr("disk on fire"))) << call;
    EXPECT_TRUE(faults.happened()) << call;
    EXPECT_THAT(one.names(), IsEmpty());
    EXPECT_THAT(two.names(), IsEmpty());
  }
}

/// The plan of a run whose optimizer states are in `folder`, or in memory.
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
  EXPECT_TRUE(std::ranges::any_of(
      run.tiny().log(), [](const nlohmann::json& line) { return line.contains("tier_seconds"); }));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("optimizer states are in " + folder + " through "),
                               HasSubstr("\n  in files, beside memory\n")));
  for (const std::string& name : run.tiny().folder().names()) {
    EXPECT_FALSE(name.starts_with(".")) << name;
  }
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
              EXPECT_THAT(ended.out, HasSubstr("optimizer states are in " + folder +
                                               " through pwrite: no io_uring: "));
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
  EXPECT_THAT(said("0.9"), ContainsRegex("[1-8][0-9] % of a rank's optimizer states are in "));
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
