// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "launch/rendezvous/start.h"
#include "launch/scale/preflight_line.h"

namespace zero {

/// Checks versions, GPUs, limits, addresses, ports, clocks, the folder and each link between the
/// hosts of `ranks`; links of GPUs through NCCL, those of CPUs through `ranks`. The same on all
/// ranks. Collective.
std::vector<PreflightLine> preflight(Communicator& ranks, const PreflightQuestion& question);

/// preflight() as the rank or ranks of this process. The first rank prints the lines. 1 if any is
/// wrong.
int run_preflight(const Start& start, const PreflightQuestion& question, int* argc, char*** argv);

}  // namespace zero
