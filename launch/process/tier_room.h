// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/host.h"
#include "files/file_system.h"

namespace zero {

class Communicator;
class Device;

/// What a rank asks of its host, as planned.
struct TierNeeds {
  std::int64_t memory_bytes = 0;
  std::int64_t file_bytes = 0;  ///< 0: it has no file
};

/// Where a rank runs. Hosts may have equal names, and containers of one host different ones.
struct HostIdentity {
  std::string name = host_name();
  std::string boot = boot_id();

  /// Whether both run on one kernel, as far as that is known: what is a local disk to both may be
  /// one folder.
  bool shares_disks(const HostIdentity& other) const {
    return boot.empty() || other.boot.empty() ? name == other.name : boot == other.boot;
  }
  friend bool operator==(const HostIdentity&, const HostIdentity&) = default;
};

/// A folder for a file of each rank (TierFile), and how messages speak of it.
struct TierPlace {
  std::string key;  ///< the setting that names the folder
  std::string folder;
  std::string what;           ///< is in the files: "optimizer states"
  std::string waits;          ///< for the files: "update"
  std::string advice;         ///< where the disk is short: "use more hosts, or ..."
  std::string memory_advice;  ///< where memory is: "more ranks or ... take less"
  bool counts_memory = true;  ///< whether ranks take memory of the host: of a CPU
};

/// Throws zero::Error unless the folder is there and this process may write to it.
void check_tier_folder(const TierPlace& place);

/// Why a folder whose file system can have `free` more files has no room for one of each rank;
/// empty: it has.
std::string missing_inodes(const TierPlace& place, std::size_t ranks, std::int64_t free);

/// Throws zero::Error if this host has no room for its ranks in memory or for their files, or a
/// process may not write a file so long. `ranks`: the needs of each rank of this host. Allocates
/// and writes nothing. Returns warnings.
std::vector<std::string> check_tier_room(const TierPlace& place, std::span<const TierNeeds> ranks,
                                         files::FileSystem& disk);

/// Throws the same AgreedError on every rank if the folder is one folder of several hosts: each
/// would wait for a file system between them. `host` is this rank's. Leaves nothing in the folder.
/// Collective.
void check_folders_apart(Communicator& ranks, Device& device, const TierPlace& place,
                         const HostIdentity& host, files::FileSystem& disk);

/// Both checks, for all ranks: throws the same AgreedError on every rank. `needs` and `host` are
/// this rank's. Returns the warnings of all hosts, each once. Collective.
std::vector<std::string> agree_on_tier_room(const TierPlace& place, const TierNeeds& needs,
                                            Communicator& ranks, Device& device,
                                            files::FileSystem& disk, const HostIdentity& host = {});

}  // namespace zero
