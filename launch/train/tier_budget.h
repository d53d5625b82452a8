// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launch/process/tier_room.h"

namespace zero {

struct TrainConfig;

/// The folder of the files of states.
TierPlace tier_place(const TrainConfig& config);

}  // namespace zero
