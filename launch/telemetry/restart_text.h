// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "launch/process/environment.h"

namespace zero {

/// Why this start is one more of the same run, as one line: "restart 2: status 137 after 41 s",
/// with what launch/retry.sh says in ZERO_RESTART, or else that torchrun or Slurm counts it as one,
/// which tell no cause. Empty for a first start. `folder`: the run's checkpoint folder, which is
/// there; empty: none. A ZERO_RESTART of another folder is of another job, which handed it down.
std::string restart_text(const Environment& environment, const std::string& folder);

}  // namespace zero
