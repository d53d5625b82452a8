// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/mpi_own.h"

#include "base/checked_math.h"
#include "collectives/mpi/comm.h"

namespace zero::bench {

using mpi::check_mpi;

void run_mpi_own(Operation operation, View from, View to) {
  const MPI_Comm all = MPI_COMM_WORLD;
  int ranks = 1;
  check_mpi(MPI_Comm_size(all, &ranks));
  const int bytes = narrow<int>(from.bytes());
  switch (operation) {
    case Operation::all_gather:
      return check_mpi(
          MPI_Allgather(from.data(), bytes, MPI_BYTE, to.data(), bytes, MPI_BYTE, all));
    case Operation::reduce_scatter:
      return check_mpi(MPI_Reduce_scatter_block(from.data(), to.data(), narrow<int>(to.count()),
                                                MPI_FLOAT, MPI_SUM, all));
    case Operation::all_reduce:
      return check_mpi(
          MPI_Allreduce(from.data(), to.data(), narrow<int>(to.count()), MPI_FLOAT, MPI_SUM, all));
    case Operation::all_to_all:
      return check_mpi(MPI_Alltoall(from.data(), bytes / ranks, MPI_BYTE, to.data(), bytes / ranks,
                                    MPI_BYTE, all));
    case Operation::broadcast:
      return check_mpi(MPI_Bcast(to.data(), narrow<int>(to.bytes()), MPI_BYTE, 0, all));
    case Operation::barrier:
      return check_mpi(MPI_Barrier(all));
  }
}

}  // namespace zero::bench
