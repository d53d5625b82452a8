// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator.h"

namespace zero::bench {

/// MPI's own blocking collective on all ranks of the job: what this library's are measured against.
///   all_gather      `from`: this rank's slice, `to`: all of them, in rank order
///   reduce_scatter  `from`: all slices, fp32, `to`: the sum of this rank's
///   all_reduce      `to` = the sum of every rank's `from`, fp32
///   all_to_all      one equal slice per rank in both
///   broadcast       `to` of rank 0 reaches every rank
/// For a process that mpi::world() has made a rank. Throws zero::Error where this build has no MPI.
void run_mpi_own(Operation operation, View from, View to);

}  // namespace zero::bench
