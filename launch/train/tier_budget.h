// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/host.h"
#include "files/file_system.h"

namespace zero {

class Communicator;
class Device;
struct TrainConfig;

/// What a folder's files lie on, by the type of its file system.
enum class Medium : std::uint8_t {
  disk,     ///< also where the type tells nothing else
  memory,   ///< tmpfs, ramfs: files take memory
  network,  ///< NFS, SMB, Lustre, Ceph and their kin, and FUSE, which may be one
};
/// Of a type as statfs() gives it.
Medium medium_of_type(std::int64_t type);
/// Of an existing folder, or of a disk if the system does not tell.
Medium medium_of(const std::string& folder);

/// What a rank asks of its host, as planned.
struct TierNeeds {
  std::int64_t memory_bytes = 0;  ///< of the host: MemoryUse::on_host()
  std::int64_t file_bytes = 0;    ///< 0: it has no file
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

/// Throws zero::Error if this host has no room for its ranks in memory (where a CPU computes, or
/// optimizer states of a GPU are in host memory) or for their files, or a process may not write a
/// file so long. `ranks`: the needs of each rank of this host. Allocates and writes nothing.
/// Returns warnings.
std::vector<std::string> check_tier_budget(const TrainConfig& config,
                                           std::span<const TierNeeds> ranks,
                                           files::FileSystem& disk);

/// Throws the same AgreedError on every rank if the folder of `config` is one folder of several
/// hosts: each would wait for a file system between them. `config` and `host` are this rank's.
/// Leaves nothing in the folder. Collective.
void check_folders_apart(Communicator& ranks, Device& device, const TrainConfig& config,
                         const HostIdentity& host, files::FileSystem& disk);

/// Both checks, for all ranks: throws the same AgreedError on every rank. `needs` and `host` are
/// this rank's. Returns the warnings of all hosts, each once. Collective.
std::vector<std::string> agree_on_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                              Communicator& ranks, Device& device,
                                              files::FileSystem& disk,
                                              const HostIdentity& host = {});

}  // namespace zero
