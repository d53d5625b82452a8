// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "inference/block_windows.h"
#include "inference/pass_times.h"
#include "launch/process/tier_room.h"

namespace zero {

struct GenerateFlags;

/// The folder of --offload-weights.
TierPlace offload_place(const GenerateFlags& flags);

/// What reading blocks cost beside computing, and how many requests at once would hide it, as
/// measured; empty if nothing was read. `whose`: " of the first rank", or empty.
std::string offload_text(const BlockReads& reads, const PassTimes& times, std::string_view whose);

}  // namespace zero
