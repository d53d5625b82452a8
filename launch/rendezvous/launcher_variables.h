// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "launch/process/environment.h"

namespace zero {

// The numbers that launchers put into variables: ranks, worlds, ports.

/// The largest number of ranks, and above every rank, that a variable may say.
inline constexpr int kAnyRanks = 1 << 20;

/// The whole number in [least, most] that a variable holds; nothing if the variable is not set.
/// Throws zero::Error if it holds anything else.
std::optional<int> number_in(const Environment& environment, const std::string& name, int least,
                             int most);

/// Whether srun started this process. Batch scripts and salloc's shells have a task's variables
/// too, but no step id, or one of the reserved largest ones.
bool in_step_of_srun(const Environment& environment);

/// Throws zero::Error, naming the variables, if those of mpirun, torchrun and srun cannot all come
/// from launchers that started each other: one of them is a left-over of an earlier launcher, and
/// obeying it makes ranks train alone. A torchrun that srun started once a host, and an mpirun
/// inside a job of Slurm, are no contradictions.
void check_launchers_agree(const Environment& environment);

}  // namespace zero
