// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/backend_kind.h"
#include "collectives/communicator.h"
#include "collectives/nccl/options.h"
#include "collectives/store.h"
#include "device/planning/clock.h"

namespace zero {

namespace local {

/// Runs body(communicator) on `ranks` threads of this process, one per rank, and returns when all
/// have ended. If one rank throws, the others are released from their collectives with an error
/// that names that rank, and run() rethrows the first error.
void run(int ranks, const std::function<void(Communicator&)>& body);
/// A world of one rank, the calling process.
std::unique_ptr<Communicator> single();

}  // namespace local

namespace mpi {

/// MPI_COMM_WORLD as a communicator. Initialises MPI (thread level multiple) on the first call and
/// finalises it with the last communicator and the work queued on it, unless the caller had
/// initialised it. A process that was not started by mpirun is a world of one rank. Throws
/// zero::Error, with the remedy, if the build has no MPI.
std::unique_ptr<Communicator> world(int* argc, char*** argv);
/// Whether this build has MPI.
bool available();
/// A process beside this one that can become the server of the host's ranks of MPI. It ends with
/// its last owner.
class JobServer;
/// Forks it. To be called before a store has threads: a lock that another thread holds at a fork is
/// closed in the new process for ever. form_job() tells of a failure.
std::shared_ptr<JobServer> start_job_server();
/// Makes rank `self.rank` of processes that a launcher without MPI started on `hosts` (one entry
/// per rank) a rank of a job of MPI: what mpirun's daemons do for ranks, `server` of the first rank
/// of each host does. world() then is the job. Collective through the store, which must outlive the
/// result; the result must outlive all communicators. Throws zero::Error on all ranks, with the
/// reason, if a host cannot, and if can_form_job() is false.
std::shared_ptr<void> form_job(const StoreRank& self, const std::vector<std::string>& hosts,
                               std::shared_ptr<JobServer> server);
/// Whether this build can: it needs MPI and PMIx.
bool can_form_job();
/// "Open MPI v4.1.4", or why the build has no MPI and how to get it.
std::string version();
/// Ends every rank of the job at once with `exit_code`, after `main` has reported its error.
[[noreturn]] void abort(int exit_code) noexcept;

}  // namespace mpi

namespace host {

/// Rank `self.rank` of the processes of one host, which share memory, in a job started without
/// mpirun. Collective through the store, which must outlive the communicator and all splits of it.
/// Throws zero::Error with the reason if the processes cannot share memory.
std::unique_ptr<Communicator> world(const StoreRank& self);

}  // namespace host

namespace store_only {

/// Rank `self.rank` of processes on `hosts` (one entry per rank) that have only a store in common,
/// which carries the values they must agree on before NCCL connects their GPUs. Reductions and
/// exchanges of gradients throw an error with the remedy. The store must outlive the communicator
/// and all splits of it.
std::unique_ptr<Communicator> world(const StoreRank& self, std::vector<std::string> hosts);

}  // namespace store_only

namespace nccl {

/// Rank `self.rank` of GPUs that communicate through NCCL. Collectives are enqueued on streams of
/// `device`, a CUDA device; all_gather, all_reduce and broadcast also take values in host memory,
/// which they copy through the GPU. Collective through the store, which must outlive the
/// communicator and all splits of it. A thread watches the store: if a rank is lost or fails, all
/// others leave their collectives within seconds, and their next call throws. Throws zero::Error if
/// ranks differ in NCCL's version or in GPUs, two have one GPU, or they do not meet in time.
std::unique_ptr<Communicator> world(const StoreRank& self, Device& device, const Options& options);
/// Whether this build has NCCL.
bool available();
/// "2.28.3", or why the build has no NCCL and how to get it.
std::string version();

}  // namespace nccl

namespace planning {

/// A collective of a planned group.
struct PlannedCollective {
  Operation operation = Operation::barrier;
  DType dtype = DType::fp32;
  std::int64_t total_bytes = 0;  ///< payload over all slices
  std::int64_t own_bytes = 0;    ///< of this rank's slice; 0: a gathered one that is in place
  /// An all-gather to memory of allocate_shared(): ranks of one host write it once.
  bool to_shared_memory = false;
  const std::vector<int>& ranks;  ///< of the world, in the group's order
  int rank = 0;                   ///< this rank's number in the group
};

/// How long collectives would take, on streams with a virtual clock.
class CollectiveTimes {
 public:
  virtual ~CollectiveTimes() = default;
  /// The time that a collective takes on a rank whose stream reaches it at `begin`. Called once for
  /// each collective of a group of several ranks, in submission order.
  virtual Span span(const PlannedCollective& collective, double begin) = 0;
};

/// Rank `rank` of a world of `size` ranks for the planner; moves no values. The workspace needs are
/// those of `backend`, the backend of the run. `device`, a planning device that must outlive the
/// communicator, is charged with the memory that communicators of `backend` take for themselves;
/// null: no charge. `times`, which must outlive all communicators, needs streams with a clock;
/// null: collectives take no time.
std::unique_ptr<Communicator> communicator(int rank, int size, BackendKind backend,
                                           Device* device = nullptr,
                                           CollectiveTimes* times = nullptr);
/// The ranks of `whole` in a group of it, in the group's order; asked only if collectives take
/// time.
using PartRanks = std::function<std::vector<int>()>;
/// Rank `rank` of a group of `size` ranks of `whole`; null if `whole` is no planning communicator.
/// Without `ranks` the group is the first ranks.
std::unique_ptr<Communicator> part(const Communicator& whole, int rank, int size,
                                   const PartRanks& ranks = {});

}  // namespace planning

}  // namespace zero
