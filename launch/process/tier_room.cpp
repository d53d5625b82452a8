// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/process/tier_room.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>

#include "base/cgroup.h"
#include "base/error.h"
#include "base/message_text.h"
#include "base/random_hex.h"
#include "collectives/agreement.h"
#include "collectives/host_values.h"
#include "files/file_system_type.h"
#include "launch/config/answers.h"
#include "launch/process/disk_room.h"
#include "launch/process/quantity.h"

namespace zero {

using files::Medium;

namespace {

/// Of what ranks tell each other.
constexpr std::string_view kPurpose = "memory and files of ranks";

TierNeeds needs_of_all(std::span<const TierNeeds> ranks) {
  TierNeeds all;
  for (const TierNeeds& rank : ranks) {
    all.memory_bytes += rank.memory_bytes;
    all.file_bytes += rank.file_bytes;
  }
  return all;
}

/// Throws zero::Error if the ranks of this host, which need `bytes`, need more than it has.
void check_room_in_memory(const TierPlace& place, std::int64_t bytes, std::size_t ranks) {
  const auto available = available_memory();
  ZERO_CHECK(!available || bytes <= *available,
             "out of memory before the start: {} are planned for {} rank(s) of this host, and {} "
             "are available; {}",
             size_text(bytes), ranks, size_text(*available), place.memory_advice);
}

/// The files that the file system of a folder still has room for by their number; the largest
/// number if there is no bound (btrfs), or if the system does not tell.
std::int64_t free_inodes(const std::string& folder) {
  struct statvfs status {};
  const bool bounded = ::statvfs(folder.c_str(), &status) == 0 && status.f_files > 0;
  return bounded ? static_cast<std::int64_t>(status.f_favail)
                 : std::numeric_limits<std::int64_t>::max();
}

/// Told before anything is allocated, and with what to do; making the file tells too.
void check_room_in_folder(const TierPlace& place, std::span<const TierNeeds> ranks,
                          files::FileSystem& disk) {
  const std::int64_t longest = std::ranges::max(ranks, {}, &TierNeeds::file_bytes).file_bytes;
  ZERO_CHECK(longest <= longest_file(),
             "{}: a rank's file takes {}, and a process may write files of {} at most "
             "(RLIMIT_FSIZE, ulimit -f); raise that limit, {}",
             place.key, decimal_bytes(longest), decimal_bytes(longest_file()), place.advice);
  const WantedRoom wanted{.key = place.key,
                          .folder = place.folder,
                          .what = fmt::format("the {} of {} rank(s)", place.what, ranks.size()),
                          .bytes = needs_of_all(ranks).file_bytes,
                          .advice = ", give another folder, " + place.advice};
  std::string missing = missing_room(disk, std::span(&wanted, 1));
  if (missing.empty()) missing = missing_inodes(place, ranks.size(), free_inodes(place.folder));
  ZERO_CHECK(missing.empty(), "{}", missing);
}

/// The hosts of all ranks, in rank order.
std::vector<HostIdentity> rank_hosts(Communicator& ranks, Device& device,
                                     const HostIdentity& host) {
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

std::string missing_inodes(const TierPlace& place, std::size_t ranks, std::int64_t free) {
  if (static_cast<std::int64_t>(ranks) <= free) return "";
  return fmt::format(
      "{}: the file system of {} has room for {} more file(s), and each of {} rank(s) makes one: "
      "it is out of inodes (df -i {}); remove files there, or give a folder of another disk",
      place.key, place.folder, free, ranks, shell_word(place.folder));
}

void check_tier_folder(const TierPlace& place) {
  std::error_code error;
  ZERO_CHECK(
      std::filesystem::exists(place.folder, error) || error,
      "{}: {} is not there; make it on the disk that you mean, on each host (mkdir -p {}), or "
      "give another folder",
      place.key, place.folder, shell_word(place.folder));
  const bool there = std::filesystem::is_directory(place.folder, error);
  ZERO_CHECK(there && ::access(place.folder.c_str(), W_OK | X_OK) == 0,
             "{}: {} {}; give a folder, on a local disk of each host, that all ranks may write to",
             place.key, place.folder, there ? "cannot be written to" : "is no folder");
}

std::vector<std::string> check_tier_room(const TierPlace& place, std::span<const TierNeeds> ranks,
                                         files::FileSystem& disk) {
  std::vector<std::string> warnings;
  const auto [memory, files] = needs_of_all(ranks);
  const Medium medium =
      files > 0 ? files::medium_of_type(files::type_of_path(place.folder)) : Medium::disk;
  if (medium == Medium::memory) {
    warnings.push_back(fmt::format(
        "{}: {} is a file system in memory: its files take {} of this host's memory, as the {} "
        "would without them; give a folder on a disk",
        place.key, place.folder, size_text(files), place.what));
  } else if (medium == Medium::network) {
    warnings.push_back(
        fmt::format("{}: {} is on a file system of a network or of a program (FUSE): every {} "
                    "waits for it, and a rank that is killed may leave its file there; give a "
                    "folder on a local disk",
                    place.key, place.folder, place.waits));
  }
  if (place.counts_memory) {
    check_room_in_memory(place, memory + (medium == Medium::memory ? files : 0), ranks.size());
  }
  if (files > 0) check_room_in_folder(place, ranks, disk);
  return warnings;
}

void check_folders_apart(Communicator& ranks, Device& device, const TierPlace& place,
                         const HostIdentity& host, files::FileSystem& disk) {
  const std::vector<HostIdentity> hosts = rank_hosts(ranks, device, host);
  const auto is_this = [&](const HostIdentity& other) { return other.shares_disks(host); };
  if (std::ranges::all_of(hosts,
                          [&](const HostIdentity& other) { return other.shares_disks(hosts[0]); }))
    return;
  // The first rank of each host makes a file that no other job has, and looks for the others'.
  const bool marks = std::ranges::find_if(hosts, is_this) - hosts.begin() == ranks.rank();
  const std::string mark =
      marks ? fmt::format(".zero_{}_{}_{}", host.name, ::getpid(), random_hex(8)) : "";
  const std::vector<std::string> all = all_gather_texts(ranks, device, mark, kPurpose);
  const std::string path = place.folder + "/" + mark;
  std::string why = failure_of([&] {
    if (marks) disk.create(path, 0);
  });
  all_gather_texts(ranks, device, why, kPurpose);  // behind this all files are there
  if (marks && why.empty()) {
    why = failure_of([&] {
      for (const std::string& name : disk.list(place.folder)) {
        const auto other = std::ranges::find(all, name);
        if (other == all.end() || name == mark) continue;
        const auto rank = static_cast<std::size_t>(other - all.begin());
        const std::string& there = hosts[rank].name;
        fail(
            "{}: {} is one folder of {}, which would wait for a file system between them; give a "
            "folder on a local disk of each host",
            place.key, place.folder,
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

std::vector<std::string> agree_on_tier_room(const TierPlace& place, const TierNeeds& needs,
                                            Communicator& ranks, Device& device,
                                            files::FileSystem& disk, const HostIdentity& host) {
  const std::vector<HostIdentity> hosts = rank_hosts(ranks, device, host);
  const std::vector<TierNeeds> all = all_needs(ranks, device, needs);
  std::vector<TierNeeds> here;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (hosts[rank] == host) here.push_back(all[rank]);
  }
  std::vector<std::string> warnings;
  agree(ranks, device, "memory", [&] { warnings = check_tier_room(place, here, disk); });
  if (needs_of_all(all).file_bytes == 0) return warnings;  // none
  check_folders_apart(ranks, device, place, host, disk);
  return warnings_of_hosts(ranks, device, hosts, warnings);
}

}  // namespace zero
