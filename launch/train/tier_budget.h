// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/process/tier_room.h"

namespace zero {

class Communicator;
class Device;
struct MemoryUse;
struct TrainConfig;

/// The folder of the files of states.
TierPlace tier_place(const TrainConfig& config);

/// Throws zero::Error if this host has no room for its ranks in memory (where a CPU computes) or
/// for their files, or a process may not write a file so long. `ranks`: the needs of each rank of
/// this host. Allocates and writes nothing. Returns warnings.
std::vector<std::string> check_tier_budget(const TrainConfig& config,
                                           std::span<const TierNeeds> ranks,
                                           files::FileSystem& disk);

/// The same, and check_folders_apart(), for all ranks: throws the same AgreedError on every rank.
/// `needs` and `host` are this rank's. Returns the warnings of all hosts, each once. Collective.
std::vector<std::string> agree_on_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                              Communicator& ranks, Device& device,
                                              files::FileSystem& disk,
                                              const HostIdentity& host = {});

/// Lines for people on where model states are, if a key asks for a place other than the default.
std::vector<std::string> tier_lines(const TrainConfig& config);

/// The line of a run that asks for files of states: the share that a rank of this plan has in its
/// file, which whole units may make smaller than asked, and how it is moved
/// (FileSystem::io_description()).
std::string tier_share_line(const TrainConfig& config, const MemoryUse& planned,
                            std::string_view transfers);

}  // namespace zero
