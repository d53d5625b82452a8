// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator.h"

namespace zero::mpi {

/// The ways that values take. The defaults are right for every run; tests use the others.
struct Options {
  enum class HostMemory {
    shared,  ///< values travel through shared memory inside a host, if possible
    unused,  ///< values travel in MPI messages between all ranks
  };
  HostMemory host_memory = HostMemory::shared;
  /// Imitates hosts: rank r of the world counts as on host hosts[r]. Empty: the real hosts.
  std::vector<int> hosts{};
  /// Most bytes of one message: MPI counts are int, so longer slices travel in pieces.
  std::int64_t largest_message = std::int64_t{1} << 29;
};

/// mpi::world with options, which must be equal on every rank.
std::unique_ptr<Communicator> world(int* argc, char*** argv, const Options& options);

}  // namespace zero::mpi
