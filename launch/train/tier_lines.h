// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/process/tier_room.h"

namespace zero {

struct MemoryUse;
struct TrainConfig;

/// The folder of the files of states, in words of a run.
TierPlace tier_place(const TrainConfig& config);

/// Lines for people on where model states are, if a key asks for a place other than the default.
std::vector<std::string> tier_lines(const TrainConfig& config);

/// Those of a run that asks for files of states: the shares that a rank of this plan has in its
/// file, which whole units may make smaller than asked, its size, and how it is moved
/// (FileSystem::io_description()).
std::vector<std::string> tier_share_lines(const TrainConfig& config, const MemoryUse& planned,
                                          std::string_view transfers);

}  // namespace zero
