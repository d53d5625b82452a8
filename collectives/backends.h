// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "collectives/communicator.h"
#include "collectives/nccl/options.h"
#include "collectives/store.h"

namespace zero {

namespace local {

/// Runs body(communicator) on `ranks` threads of this process, one per rank, and returns when all
/// have ended. When one throws, the others are released from their collectives with an error that
/// names it, and the first error is rethrown here.
void run(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace local

namespace mpi {

/// MPI_COMM_WORLD as a communicator. Initialises MPI (thread level multiple) on the first call and
/// finalises it with the last communicator, unless the caller had initialised it. A process that
/// was not started by mpirun is a world of one. Without MPI at configure time it throws zero::Error
/// saying how to get it.
std::unique_ptr<Communicator> world(int* argc, char*** argv);
/// Whether this build has MPI.
bool available();
/// "Open MPI v4.1.4", or why there is none and how to get it.
std::string version();
/// Ends every rank of the job with `exit_code`, at once. For a `main` that has reported its error.
[[noreturn]] void abort(int exit_code) noexcept;

}  // namespace mpi

namespace host {

/// Rank `seat.rank` of processes of one host, which share memory: of a job that no mpirun started.
/// Collective through the store, which must outlive the communicator and what is split from it.
/// Throws zero::Error with the reason where the processes cannot share memory.
std::unique_ptr<Communicator> world(const StoreSeat& seat);

}  // namespace host

namespace control {

/// Rank `seat.rank` of processes on `hosts`, one for each rank, that have only a store in common:
/// what they must agree on until their GPUs have met goes through it. Reductions and exchanges of
/// gradients are refused, with what to do. The store must outlive the communicator and what is
/// split from it.
std::unique_ptr<Communicator> world(const StoreSeat& seat, std::vector<std::string> hosts);

}  // namespace control

namespace nccl {

/// Rank `seat.rank` of GPUs that talk through NCCL, whose collectives are work on streams of
/// `device`, a CUDA device. Values in host memory travel too, by way of the GPU, in all_gather,
/// all_reduce and broadcast. Collective through the store, which must outlive the communicator and
/// what is split from it, and is watched: where a rank is lost or fails, all others are out within
/// seconds, with an error from their next call. Throws zero::Error where ranks differ in NCCL's
/// version or in GPUs, where two have one GPU, and where they do not meet in time.
std::unique_ptr<Communicator> world(const StoreSeat& seat, Device& device, const Options& options);
/// Whether this build has NCCL.
bool available();
/// "2.28.3", or why there is none and how to get it.
std::string version();

}  // namespace nccl

namespace planning {

/// Rank `rank` of a world of `size` that moves nothing: for the planner. Its workspace needs are
/// those of `backend` ("local", "host", "mpi", "nccl" or "nccl fast"). `device`, a plan's, which
/// must outlive it, is charged with what its communicators take for themselves; null: nothing is.
std::unique_ptr<Communicator> communicator(int rank, int size, std::string_view backend,
                                           Device* device = nullptr);
/// Rank `rank` of a group of `size` ranks out of `whole`'s; null where `whole` is no planning
/// communicator.
std::unique_ptr<Communicator> part(const Communicator& whole, int rank, int size);

}  // namespace planning

}  // namespace zero
