// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "launch/process/tier_room.h"

namespace zero {

class Communicator;
class Device;
struct TrainConfig;

/// The folder of the files of states.
TierPlace tier_place(const TrainConfig& config);

/// Throws zero::Error if this host has no room for its ranks in memory (where a CPU computes, or
/// optimizer states of a GPU are in host memory) or for their files, or a process may not write a
/// file so long. `ranks`: the needs of each rank of this host. Allocates and writes nothing.
/// Returns warnings.
std::vector<std::string> check_tier_budget(const TrainConfig& config,
                                           std::span<const TierNeeds> ranks,
                                           files::FileSystem& disk);

/// The same, and check_folders_apart(), for all ranks: throws the same AgreedError on every rank.
/// `needs` and `host` are this rank's. Returns the warnings of all hosts, each once. Collective.
std::vector<std::string> agree_on_tier_budget(const TrainConfig& config, const TierNeeds& needs,
                                              Communicator& ranks, Device& device,
                                              files::FileSystem& disk,
                                              const HostIdentity& host = {});

}  // namespace zero
