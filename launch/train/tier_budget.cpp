// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/train/tier_budget.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <sstream>
#include <string_view>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/message_text.h"
#include "base/random_hex.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "launch/config/train_config.h"
#include "launch/process/quantity.h"
#include "launch/train/file_checks.h"

namespace zero {
namespace {

/// Of what ranks tell each other.
constexpr std::string_view kPurpose = "memory and files of states";

// The system's headers name some of these only.
constexpr std::array<std::int64_t, 2> kMemoryTypes{0x01021994,     // tmpfs
                                                   0x858458f6};    // ramfs
constexpr std::array<std::int64_t, 12> kNetworkTypes{0x6969,       // NFS
                                                     0x517b,       // SMB
                                                     0xff534d42,   // CIFS
                                                     0xfe534d42,   // SMB 2
                                                     0x0bd00bd0,   // Lustre
                                                     0x00c36400,   // Ceph
                                                     0x47504653,   // GPFS
                                                     0x19830326,   // BeeGFS
                                                     0x01021997,   // 9p
                                                     0x5346414f,   // AFS
                                                     0x6b414653,   // AFS of the kernel
                                                     0x65735546};  // FUSE

/// What one file of a rank holds, and the key that keeps a part of it in memory.
struct FiledText {
  std::string what;
  std::string key;
};
FiledText filed_text(const TierOptions& tiers) {
  const std::string ratio = "zero_optimization.offload_optimizer.ratio";
  const std::string most = "zero_optimization.offload_param.max_in_cpu";
  if (tiers.parameters != Tier::file) return {"optimizer states", ratio};
  if (tiers.optimizer != Tier::file) return {"parameters", most};
  return {"optimizer states and parameters", ratio + ", " + most};
}

TierNeeds total_of(std::span<const TierNeeds> ranks) {
  TierNeeds all;
  for (const TierNeeds& rank : ranks) {
    all.memory_bytes += rank.memory_bytes;
    all.file_bytes += rank.file_bytes;
  }
  return all;
}

/// Throws zero::Error if the ranks of this host, which need `bytes`, need more than it has.
void check_room_in_memory(const TrainConfig& config, std::int64_t bytes, std::size_t ranks) {
  const auto available = available_memory();
  ZERO_CHECK(
      !available || bytes <= *available || config.run.device == DeviceKind::cpu,
      "out of host memory before the start: {} of pinned memory are planned for {} rank(s) of this "
      "host, and {} are available; more ranks or hosts at a higher stage, a smaller "
      "optimizer.params.moments, or a lower zero_optimization.offload_optimizer.ratio take less",
      size_text(bytes), ranks, available ? size_text(*available) : "");
  ZERO_CHECK(
      !available || bytes <= *available,
      "out of memory before the start: {} are planned for {} rank(s) of this host, and {} are "
      "available; more ranks or hosts at a higher stage, recompute, optimizer states on NVMe, at "
      "stage 3 parameters too, or a smaller batch take less: --plan and run.memory_limit tell what "
      "would do",
      size_text(bytes), ranks, size_text(*available));
}

/// Told before anything is allocated, and with what to do; making the file tells too.
void check_room_in_folder(const TrainConfig& config, std::span<const TierNeeds> ranks,
                          files::FileSystem& disk) {
  const std::string key = tier_folder_key(config.values);
  const auto [what, keeps] = filed_text(config.engine.tiers);
  const std::string advice =
      fmt::format("use more hosts, or keep a part of the {} in memory ({})", what, keeps);
  const std::int64_t longest = std::ranges::max(ranks, {}, &TierNeeds::file_bytes).file_bytes;
  rlimit limit{};
  const bool bounded = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  ZERO_CHECK(!bounded || static_cast<rlim_t>(longest) <= limit.rlim_cur,
             "{}: a rank's file takes {}, and a process may write files of {} at most "
             "(RLIMIT_FSIZE, ulimit -f); raise that limit, {}",
             key, decimal_bytes(longest), decimal_bytes(static_cast<std::int64_t>(limit.rlim_cur)),
             advice);
  const WantedRoom wanted{.key = key,
                          .folder = config.engine.tiers.file.folder,
                          .what = fmt::format("the {} of {} rank(s)", what, ranks.size()),
                          .bytes = total_of(ranks).file_bytes,
                          .advice = ", give another folder, " + advice};
  const std::string missing = missing_room(disk, std::span(&wanted, 1));
  ZERO_CHECK(missing.empty(), "{}", missing);
}

/// The hosts of all ranks, in rank order.
std::vector<HostIdentity> hosts_of(Communicator& ranks, Device& device, const HostIdentity& host) {
  const std::vector<std::string> names = all_gather_texts(ranks, device, host.name, kPurpose);
  const std::vector<std::string> boots = all_gather_texts(ranks, device, host.boot, kPurpose);
  std::vector<HostIdentity> hosts;
  for (std::size_t i = 0; i < names.size(); ++i) hosts.push_back({names[i], boots[i]});
  return hosts;
}

/// The needs of all ranks, in rank order.
std::vector<TierNeeds> all_needs(Communicator& ranks, Device& device, const TierNeeds& needs) {
  std::vector<std::int64_t> bytes(2 * static_cast<std::size_t>(ranks.size()));
  const auto own = 2 * static_cast<std::size_t>(ranks.rank());
  bytes[own] = needs.memory_bytes;
  bytes[own + 1] = needs.file_bytes;
  host_all_gather(ranks, device, Slices::even(View::of(std::span(bytes)), ranks.size()),
                  {std::string(kPurpose), {}});
  std::vector<TierNeeds> all;
  for (std::size_t i = 0; i < bytes.size(); i += 2) all.push_back({bytes[i], bytes[i + 1]});
  return all;
}

/// The warnings of all ranks, each once, with the host that has it where there are several.
std::vector<std::string> warnings_of_hosts(Communicator& ranks, Device& device,
                                           std::span<const HostIdentity> hosts,
                                           const std::vector<std::string>& mine) {
  const std::vector<std::string> all =
      all_gather_texts(ranks, device, fmt::format("{}", fmt::join(mine, "\n")), kPurpose);
  const bool several = std::ranges::count(hosts, hosts.front()) < std::ssize(hosts);
  std::vector<std::string> warnings;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream lines(all[rank]);
    for (std::string line; std::getline(lines, line);) {
      if (several) line = fmt::format("host {}: {}", hosts[rank].name, line);
      if (std::ranges::find(warnings, line) == warnings.end()) warnings.push_back(line);
    }
  }
  return warnings;
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

std::vector<std::string> check_tier_budget(const TrainConfig& config,
                                           std::span<const TierNeeds> ranks,
                                           files::FileSystem& disk) {
  std::vector<std::string> warnings;
  const std::string key = tier_folder_key(config.values);
  const std::string& folder = config.engine.tiers.file.folder;
  const auto [memory, files] = total_of(ranks);
  const Medium medium = files > 0 ? medium_of(folder) : Medium::disk;
  if (medium == Medium::memory) {
    warnings.push_back(fmt::format(
        "{}: {} is a file system in memory: its files take {} of this host's memory, as the {} "
        "would without them; give a folder on a disk",
        key, folder, size_text(files), filed_text(config.engine.tiers).what));
  } else if (medium == Medium::network) {
    warnings.push_back(
        fmt::format("{}: {} is on a file system of a network or of a program (FUSE): every step "
                    "waits for it, and a rank that is killed may leave its file there; give a "
                    "folder on a local disk",
                    key, folder));
  }
  if (config.run.device == DeviceKind::cpu || config.engine.tiers.optimizer == Tier::host) {
    check_room_in_memory(config, memory + (medium == Medium::memory ? files : 0), ranks.size());
  }
  if (files > 0) check_room_in_folder(config, ranks, disk);
  return warnings;
}

void check_folders_apart(Communicator& ranks, Device& device, const TrainConfig& config,
                         const HostIdentity& host, files::FileSystem& disk) {
  const std::string& folder = config.engine.tiers.file.folder;
  const std::vector<HostIdentity> hosts = hosts_of(ranks, device, host);
  const auto is_this = [&](const HostIdentity& other) { return other.shares_disks(host); };
  if (std::ranges::all_of(hosts,
                          [&](const HostIdentity& other) { return other.shares_disks(hosts[0]); }))
    return;
  // The first rank of each host makes a file that no other job has, and looks for the others'.
  const bool marks = std::ranges::find_if(hosts, is_this) - hosts.begin() == ranks.rank();
  const std::string mark =
      marks ? fmt::format(".zero_{}_{}_{}", host.name, ::getpid(), random_hex(8)) : "";
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
        if (other == all.end() || name == mark) continue;
        const auto rank = static_cast<std::size_t>(other - all.begin());
        const std::string& there = hosts[rank].name;
        fail(
            "{}: {} is one folder of {}, which would wait for a file system between them; give a "
            "folder on a local disk of each host",
            tier_folder_key(config.values), folder,
            there == host.name ? fmt::format("several hosts named {}", there)
                               : fmt::format("the hosts {} and {}", host.name, there));
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
                                              files::FileSystem& disk, const HostIdentity& host) {
  const std::vector<HostIdentity> hosts = hosts_of(ranks, device, host);
  const std::vector<TierNeeds> all = all_needs(ranks, device, needs);
  std::vector<TierNeeds> here;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (hosts[rank] == host) here.push_back(all[rank]);
  }
  std::vector<std::string> warnings;
  agree(ranks, device, "memory", [&] { warnings = check_tier_budget(config, here, disk); });
  if (total_of(all).file_bytes == 0) return warnings;  // none
  check_folders_apart(ranks, device, config, host, disk);
  return warnings_of_hosts(ranks, device, hosts, warnings);
}

}  // namespace zero
