// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// What the ranks of one host ask of it, as planned.
struct TierNeeds {
  std::int64_t memory_bytes = 0;  ///< of a rank
  std::int64_t file_bytes = 0;    ///< of a rank's file; 0: none
  int ranks = 1;                  ///< of this host
};

/// Throws zero::Error if this host has no room for its ranks in memory (where a CPU computes) or
/// for their files, or a process may not write a file so long. Allocates and writes nothing.
/// Returns warnings.
std::vector<std::string> check_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                           files::FileSystem& disk);

/// Throws the same AgreedError on every rank if `folder` is one folder of several hosts: each would
/// wait for a file system between them. `host` is this rank's. Leaves nothing in the folder.
/// Collective.
void check_folders_apart(Communicator& ranks, Device& device, const std::string& folder,
                         const std::string& host, files::FileSystem& disk);

/// Both checks, for all ranks: throws the same AgreedError on every rank. Returns this rank's
/// warnings. Collective.
std::vector<std::string> agree_on_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                              Communicator& ranks, Device& device,
                                              files::FileSystem& disk);

/// Lines for people on where model states are, if a key asks for a place other than the default.
std::vector<std::string> tier_lines(const TrainConfig& config);

}  // namespace zero
