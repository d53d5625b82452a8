// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "launch/faults/diagnosis.h"
#include "launch/faults/doctor.h"

namespace zero {

/// Finds the fault of the ranks that were read, by the first of these that tells of one: errors
/// that ranks told of; what watchdogs found; the ranks' positions. `deaths`: of processes that are
/// gone while others go on.
void judge(Examination& found, const std::vector<RankDeath>& deaths);

}  // namespace zero
