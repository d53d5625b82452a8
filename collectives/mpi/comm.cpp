// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/comm.h"

#include <exception>
#include <utility>

#include "collectives/mpi/check.h"

namespace zero::mpi {

bool finalised() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

Comm::Comm(MPI_Comm handle) : handle_(handle) {
  check_mpi(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN));
  check_mpi(MPI_Comm_rank(handle, &rank_));
  check_mpi(MPI_Comm_size(handle, &size_));
}

Comm Comm::copy_of(MPI_Comm handle) {
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(handle, &copy));
  return Comm(copy);
}

Comm::Comm(Comm&& other) noexcept
    : handle_(std::exchange(other.handle_, MPI_COMM_NULL)),
      abandoned_(other.abandoned_),
      rank_(other.rank_),
      size_(other.size_) {}

Comm::~Comm() {
  // While unwinding: the peers do not free the communicator, so neither may this rank.
  if (handle_ == MPI_COMM_NULL || abandoned_) return;
  if (std::uncaught_exceptions() == 0 && !finalised()) {
    MPI_Comm_free(&handle_);
  }
}

}  // namespace zero::mpi
