// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_budget.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <span>
#include <string_view>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/host.h"
#include "base/message_text.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "launch/config/train_config.h"
#include "launch/process/quantity.h"
#include "launch/train/file_checks.h"

namespace zero {
namespace {

const std::string kOffload = "zero_optimization.offload_optimizer.";
const std::string kNvmePath = kOffload + "nvme_path";

// The system's headers name some of these only.
constexpr std::array<std::int64_t, 2> kMemoryTypes{0x01021994,    // tmpfs
                                                   0x858458f6};   // ramfs
constexpr std::array<std::int64_t, 9> kNetworkTypes{0x6969,       // NFS
                                                    0x517b,       // SMB
                                                    0xff534d42,   // CIFS
                                                    0xfe534d42,   // SMB 2
                                                    0x0bd00bd0,   // Lustre
                                                    0x00c36400,   // Ceph
                                                    0x47504653,   // GPFS
                                                    0x19830326,   // BeeGFS
                                                    0x65735546};  // FUSE

bool states_in_files(const TrainConfig& config) {
  return config.engine.tiers.optimizer == Tier::file;
}

/// Throws zero::Error if the ranks of this host, which need `bytes`, need more than it has.
void check_room_in_memory(std::int64_t bytes, int ranks) {
  const auto available = available_memory();
  ZERO_CHECK(
      !available || bytes <= *available,
      "out of memory before the start: {} are planned for {} rank(s) of this host, and {} are "
      "available; more ranks or hosts at a higher stage, recompute, optimizer states on NVMe or a "
      "smaller batch take less: --plan and run.memory_limit tell what would do",
      size_text(bytes), ranks, size_text(*available));
}

/// Beyond the longest file that a process may write a signal would end it.
void check_room_in_folder(const std::string& folder, const TierNeeds& needs,
                          files::FileSystem& disk) {
  const std::string advice =
      fmt::format("use more hosts, or keep a part of the states in memory ({}ratio)", kOffload);
  rlimit limit{};
  const bool bounded = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  ZERO_CHECK(!bounded || static_cast<rlim_t>(needs.file_bytes) <= limit.rlim_cur,
             "{}: a rank's file takes {}, and a process may write files of {} at most "
             "(RLIMIT_FSIZE, ulimit -f); raise that limit, {}",
             kNvmePath, decimal_bytes(needs.file_bytes),
             decimal_bytes(static_cast<std::int64_t>(limit.rlim_cur)), advice);
  const WantedRoom wanted{.key = kNvmePath,
                          .folder = folder,
                          .what = fmt::format("the optimizer states of {} rank(s)", needs.ranks),
                          .bytes = needs.file_bytes * needs.ranks,
                          .advice = ", give another folder, " + advice};
  const std::string missing = missing_room(disk, std::span(&wanted, 1));
  ZERO_CHECK(missing.empty(), "{}", missing);
}

}  // namespace

Medium medium_of_type(std::int64_t type) {
  if (std::ranges::find(kMemoryTypes, type) != kMemoryTypes.end()) return Medium::memory;
  return std::ranges::find(kNetworkTypes, type) == kNetworkTypes.end() ? Medium::disk
                                                                       : Medium::network;
}

Medium medium_of(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return Medium::disk;
  // 32 bits that some systems keep in a signed word.
  return medium_of_type(static_cast<std::int64_t>(static_cast<std::uint32_t>(status.f_type)));
}

std::vector<std::string> check_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                           files::FileSystem& disk) {
  std::vector<std::string> warnings;
  const std::string& folder = config.engine.tiers.file.folder;
  const Medium medium = needs.file_bytes > 0 ? medium_of(folder) : Medium::disk;
  const std::int64_t files = needs.file_bytes * needs.ranks;
  if (medium == Medium::memory) {
    warnings.push_back(fmt::format(
        "{}: {} is a file system in memory: its files take {} of this host's memory, as the "
        "states would without them; give a folder on a disk",
        kNvmePath, folder, size_text(files)));
  } else if (medium == Medium::network) {
    warnings.push_back(
        fmt::format("{}: {} is on a file system of a network or of a program (FUSE): every update "
                    "waits for it, and a rank that is killed may leave its file there; give a "
                    "folder on a local disk",
                    kNvmePath, folder));
  }
  if (config.run.device == DeviceKind::cpu) {
    check_room_in_memory(needs.memory_bytes * needs.ranks + (medium == Medium::memory ? files : 0),
                         needs.ranks);
  }
  if (needs.file_bytes > 0) check_room_in_folder(folder, needs, disk);
  return warnings;
}

void check_folders_apart(Communicator& ranks, Device& device, const std::string& folder,
                         const std::string& host, files::FileSystem& disk) {
  constexpr std::string_view kPurpose = "folders of files of states";
  const std::vector<std::string> hosts = all_gather_texts(ranks, device, host, kPurpose);
  if (std::ranges::count(hosts, hosts.front()) == std::ssize(hosts)) return;
  // The first rank of each host makes a file that no other job has, and looks for the others'.
  const bool marks = std::ranges::find(hosts, host) - hosts.begin() == ranks.rank();
  const std::string mark =
      marks ? fmt::format(".zero_{}_{}_{:x}", host, ::getpid(), std::random_device{}()) : "";
  const std::vector<std::string> all = all_gather_texts(ranks, device, mark, kPurpose);
  const std::string path = folder + "/" + mark;
  std::string why = failure_of([&] {
    if (marks) disk.create(path, 0);
  });
  all_gather_texts(ranks, device, why, kPurpose);  // behind this all files are there
  if (marks && why.empty()) {
    why = failure_of([&] {
      for (const std::string& name : disk.list(folder)) {
        const auto other = std::ranges::find(all, name);
        ZERO_CHECK(other == all.end() || name == mark,
                   "{}: {} is one folder of the hosts {} and {}, which would wait for a file "
                   "system between them; give a folder on a local disk of each host",
                   kNvmePath, folder, host, hosts[static_cast<std::size_t>(other - all.begin())]);
      }
    });
  }
  all_gather_texts(ranks, device, why, kPurpose);  // behind this none is looked for
  const std::string ignored = failure_of([&] {
    if (marks) disk.remove_file(path);
  });
  agree(ranks, device, kPurpose, [&] { ZERO_CHECK(why.empty(), "{}", why); });
}

std::vector<std::string> agree_on_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                              Communicator& ranks, Device& device,
                                              files::FileSystem& disk) {
  std::vector<std::string> warnings;
  agree(ranks, device, "memory", [&] { warnings = check_tier_budget(config, needs, disk); });
  if (states_in_files(config)) {
    check_folders_apart(ranks, device, config.engine.tiers.file.folder, host_name(), disk);
  }
  return warnings;
}

std::vector<std::string> tier_lines(const TrainConfig& config) {
  std::vector<std::string> lines;
  const Configuration& values = config.values;
  const std::string in_memory = "is in host memory on a CPU in any case";
  const auto say = [&](const std::string& key, bool asked, std::string_view what) {
    if (asked) lines.push_back(fmt::format("{} changes nothing: {} {}", key, what, in_memory));
  };
  const std::string parameters = "zero_optimization.offload_param.device";
  say(kOffload + "device \"cpu\"", values.text(kOffload + "device") == "cpu",
      "what optimizers keep");
  say(parameters + " \"cpu\"", values.text(parameters) == "cpu", "what stage 3 shards");
  say("activation_checkpointing.cpu_checkpointing",
      values.boolean("activation_checkpointing.cpu_checkpointing"), "what blocks keep");
  const TierOptions& tiers = config.engine.tiers;
  if (states_in_files(config)) {
    lines.push_back(fmt::format(
        "optimizer states{} are in a file of each rank in {}, updated in {} windows of {} elements "
        "at most",
        tiers.optimizer_ratio < 1
            ? fmt::format(" of {:.0f} % of the elements", 100 * tiers.optimizer_ratio)
            : "",
        tiers.file.folder, tiers.windows.buffers, tiers.windows.buffer_elements));
    return lines;
  }
  for (const std::string& key : keys_of_section("aio")) {
    if (!values.given("aio." + key)) continue;
    lines.emplace_back("aio changes nothing: no states are on NVMe");
    break;
  }
  return lines;
}

}  // namespace zero
