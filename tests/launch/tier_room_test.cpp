// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>

#include "collectives/backends.h"
#include "launch/train/file_checks.h"
#include "launch/train/tier_ladder.h"
#include "launch/train/tier_lines.h"
#include "tests/checkpoint/hooked_disk.h"
#include "tests/checkpoint/memory_files.h"
#include "tests/launch/config_with.h"
#include "tests/launch/cut_run.h"
#include "tests/launch/tier_keys.h"
#include "tests/scratch.h"

// What a host must have for files of model states.
namespace zero::testing {
namespace {

using files::Medium;
using files::medium_of_type;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(TierRoom, KnowsWhatFoldersLieOn) {
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
  EXPECT_EQ(medium_of_type(OCFS2_SUPER_MAGIC), Medium::network);
  EXPECT_EQ(medium_of_type(EXT4_SUPER_MAGIC), Medium::disk);
  EXPECT_EQ(medium_of_type(XFS_SUPER_MAGIC), Medium::disk);
  EXPECT_EQ(medium_of_type(OVERLAYFS_SUPER_MAGIC), Medium::disk);
  EXPECT_EQ(medium_of_type(files::type_of_path("/nowhere/at/all")), Medium::disk);
}

TEST(TierRoom, IsThatOfAllRanksOfAHost) {
  MemoryFiles disk;
  disk.make_folder("/fast");
  disk.set_free_bytes(5'000'000);
  const TrainConfig config = config_with(nvme_keys("/fast"));
  const auto refusal = [&](const std::vector<TierNeeds>& ranks) {
    return error_of([&] { check_tier_room(tier_place(config), ranks, disk); });
  };
  const TierNeeds large{.file_bytes = 4'000'000};
  const TierNeeds small{.file_bytes = 300'000};
  EXPECT_EQ(refusal({small, large, small, small}), "no error");
  EXPECT_EQ(refusal({large, small, small, {.file_bytes = 3'400'000}}),
            "zero_optimization.offload_optimizer.nvme_path: /fast has room for 5.0 MB, and the "
            "optimizer states of 4 rank(s) take 8.0 MB: 3.0 MB are missing; free space there, "
            "give another folder, use more hosts, or keep a part of the optimizer states in memory "
            "(zero_optimization.offload_optimizer.ratio)");
  const auto refusal_of = [&](const std::vector<std::string>& keys) {
    const std::vector<TierNeeds> one{{.file_bytes = 8'000'000}};
    return error_of([&] { check_tier_room(tier_place(config_with(keys)), one, disk); });
  };
  EXPECT_EQ(refusal_of(shard_keys("/fast")),
            "zero_optimization.offload_param.nvme_path: /fast has room for 5.0 MB, and the "
            "parameters of 1 rank(s) take 8.0 MB: 3.0 MB are missing; free space there, give "
            "another folder, use more hosts, or keep a part of the parameters in memory "
            "(zero_optimization.offload_param.max_in_cpu)");
  EXPECT_THAT(refusal_of(all_keys("/fast")),
              AllOf(HasSubstr("offload_optimizer.nvme_path: /fast has room for 5.0 MB, and the "
                              "optimizer states and parameters of 1 rank(s) take 8.0 MB"),
                    HasSubstr("offload_optimizer.ratio, zero_optimization.offload_param.max_")));
  EXPECT_THAT(refusal({{.memory_bytes = 1}, {.memory_bytes = std::int64_t{1} << 50}}),
              AllOf(HasSubstr("out of memory before the start"), HasSubstr("2 rank(s)"),
                    HasSubstr("smaller windows of states"), Not(HasSubstr("states on NVMe"))));
  const TrainConfig in_memory = config_with({"run.device=cpu", "run.threads=1"});
  const TierNeeds huge{.memory_bytes = std::int64_t{1} << 50};
  EXPECT_THAT(
      error_of([&] { check_tier_room(tier_place(in_memory), std::span(&huge, 1), disk); }),
      HasSubstr("optimizer states on NVMe, at stage 3 parameters too, or a smaller batch take"));
  TrainConfig no_folder =
      config_with({"run.device=cpu", "run.threads=1", kOffloadOptimizer + "device=auto"});
  fit_memory(no_folder, BackendKind::local);
  EXPECT_THAT(
      error_of([&] { check_tier_room(tier_place(no_folder), std::span(&huge, 1), disk); }),
      HasSubstr("a folder on a disk for \"auto\" (zero_optimization.offload_optimizer.nvme_path)"));
}

// A GPU's own memory is its driver's to tell.
TEST(TierRoom, OfAGpuIsTheHostMemoryOfWhatIsThere) {
  MemoryFiles disk;
  const std::vector<TierNeeds> ranks{{.memory_bytes = 1}, {.memory_bytes = std::int64_t{1} << 50}};
  const auto refusal = [&](const std::string& device) {
    const TrainConfig config =
        config_with({"run.device=cuda", "zero_optimization.offload_optimizer.device=" + device});
    return error_of([&] { check_tier_room(tier_place(config), ranks, disk); });
  };
  EXPECT_EQ(refusal("none"), "no error");
  EXPECT_THAT(refusal("cpu"),
              AllOf(HasSubstr("out of memory before the start"), HasSubstr("2 rank(s)"),
                    HasSubstr("optimizer states of a GPU take it, pinned: "),
                    HasSubstr("a lower zero_optimization.offload_optimizer.ratio")));
  const auto refusal_of = [&](std::vector<std::string> keys) {
    keys.emplace_back("run.device=cuda");
    return error_of([&] { check_tier_room(tier_place(config_with(keys)), ranks, disk); });
  };
  EXPECT_THAT(refusal_of({"zero_optimization.stage=3", "zero_optimization.offload_param.device=cpu",
                          "activation_checkpointing.cpu_checkpointing=true"}),
              AllOf(HasSubstr("parameters, kept inputs of blocks of a GPU take it, pinned: "),
                    HasSubstr("\"nvme\" as zero_optimization.offload_param.device"),
                    HasSubstr("no activation_checkpointing.cpu_checkpointing"),
                    Not(HasSubstr("offload_optimizer.ratio"))));
}

// Beyond the limit the system would end the process with a signal.
TEST(TierRoom, KnowsTheLongestFileThatAProcessMayWrite) {
  MemoryFiles disk;
  disk.make_folder("/fast");
  const TrainConfig config = config_with(nvme_keys("/fast"));
  const FileSizeLimit limit(3'000'000);
  const std::vector<TierNeeds> ranks(8, {.file_bytes = 3'000'000});
  EXPECT_THAT(check_tier_room(tier_place(config), ranks, disk), IsEmpty());
  const std::vector<TierNeeds> one_long{{.file_bytes = 1000}, {.file_bytes = 4'000'000}};
  EXPECT_THAT(error_of([&] { check_tier_room(tier_place(config), one_long, disk); }),
              HasSubstr("a rank's file takes 4.0 MB, and a process may write files of 3.0 MB at "
                        "most (RLIMIT_FSIZE, ulimit -f); raise that limit"));
}

TEST(TierRoom, KnowsThatAFileSystemHoldsOnlySoManyFiles) {
  const TierPlace place = tier_place(config_with(nvme_keys("/fast")));
  EXPECT_EQ(missing_inodes(place, 8, 8), "");
  EXPECT_EQ(missing_inodes(place, 8, 7),
            "zero_optimization.offload_optimizer.nvme_path: the file system of /fast has room for "
            "7 more file(s), and each of 8 rank(s) makes one: it is out of inodes (df -i /fast); "
            "remove files there, or give a folder of another disk");
}

TEST(TierRoom, CountsFilesInMemoryAsMemory) {
  if (!has_memory_folder()) GTEST_SKIP() << "no file system in memory at " << kMemoryFolder;
  const TrainConfig config = config_with(nvme_keys(kMemoryFolder));
  const std::vector<TierNeeds> two(2, {.file_bytes = 4096});
  EXPECT_THAT(check_tier_room(tier_place(config), two, files::disk()),
              ElementsAre(AllOf(HasSubstr("nvme_path: /dev/shm is a file system in memory"),
                                HasSubstr("take 8.00 KiB of this host's memory"))));
  const std::vector<TierNeeds> all{{.file_bytes = std::int64_t{1} << 50}};
  EXPECT_THAT(error_of([&] { check_tier_room(tier_place(config), all, files::disk()); }),
              HasSubstr("out of memory before the start"));
}

TEST(TierRoom, FoldersThatAreNotThereEndTheRun) {
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
  const auto by_auto = [](const Overrides& path) {
    return config_with(plus({"run.device=cpu", kOffloadOptimizer + "device=auto"}, path));
  };
  EXPECT_THAT(
      error_of([&] { check_files(by_auto({kOffloadOptimizer + "nvme_path=" + file})); }),
      HasSubstr("zero_optimization.offload_optimizer.nvme_path: " + file + " is no folder"));
  EXPECT_EQ(error_of([&] { check_files(by_auto({})); }), "no error") << "there may be no file";
  EXPECT_THAT(error_of([&] { check_files(config_with(shard_keys(file))); }),
              HasSubstr("zero_optimization.offload_param.nvme_path: " + file + " is no folder"));
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
      const TrainConfig config = config_with(nvme_keys(host == 0 ? first : second));
      check_folders_apart(ranks, *cpu::open(), tier_place(config), hosts[host], disk);
    });
  });
  return said;
}

TEST(TierRoom, FoldersThatHostsShareEndEveryRank) {
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
TEST(TierRoom, HostsAreToldApartByTheirBootsAndByNamesWhereThereIsNone) {
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

/// What agree_on_tier_room() says to four ranks of two hosts with a folder each and needs of
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
      said[rank] = agree_on_tier_room(tier_place(config), needs[rank], ranks, *cpu::open(), disk,
                                      kNodes[host]);
    });
    if (error != "no error") said[rank] = {error};
  });
  return said;
}

TEST(TierRoom, IsThatOfTheRanksOfEachHost) {
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

TEST(TierRoom, WarnsEveryRankOfEachHostOnce) {
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
TEST(TierRoom, FoldersWithoutAFileMayBeShared) {
  const Scratch shared;
  EXPECT_THAT(agreed({shared.path(), shared.path()}, {}, files::disk()), Each(IsEmpty()));
  EXPECT_THAT(
      agreed({shared.path(), shared.path()}, {TierNeeds{.file_bytes = 4096}}, files::disk()),
      Each(ElementsAre(HasSubstr("is one folder of the hosts "))));
}

// Nor do they leave a rank waiting where a disk fails.
TEST(TierRoom, DisksThatFailWhileFoldersAreComparedEndEveryRank) {
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

}  // namespace
}  // namespace zero::testing
