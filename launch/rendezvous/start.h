// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/backend_kind.h"
#include "launch/process/environment.h"
#include "launch/rendezvous/job_secret.h"
#include "launch/rendezvous/store/endpoint.h"

namespace zero {

class Communicator;

/// The way this process was started, and its rank and job.
struct Start {
  enum class By {
    alone,      ///< a world of one rank
    mpirun,     ///< MPI knows the job; the other fields hold its variables until MPI starts
    variables,  ///< RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, as torchrun sets them
    slurm,      ///< srun's variables
    threads,    ///< --local-ranks: the ranks are threads of this process
  };
  By by = By::alone;
  int rank = 0;  ///< in mode threads: the first rank
  int world = 1;
  /// mpirun: whether the variables give `world`; otherwise `world` is 1.
  bool world_is_said = true;
  int local_rank = 0;
  int local_world = 1;  ///< ranks on this host; all if no variable tells
  /// alone: the tasks for which Slurm has given resources, if more than one, in a process that srun
  /// did not start (a batch script's, a shell's of salloc): nothing has started the others.
  int tasks_to_start = 1;
  Spread spread = Spread::unsaid;
  std::string address{};  ///< of rank 0: variables, slurm
  int port = 0;
  /// The job's name, which tells apart two jobs on one port: variables, slurm. Empty if the
  /// launcher gives none; torchrun's is "none" without --rdzv-id.
  std::string job{};
  std::string hint{};  ///< ends the message that rank 0 does not answer: variables
};

/// The value of `local_ranks` if --local-ranks is not given.
inline constexpr int kNoLocalRanks = 0;

/// Whether a program has MPI.
enum class MpiSupport { built_in, missing };
MpiSupport mpi_support();

/// Determines how the program, built with MPI or not, was started. Throws zero::Error if variables
/// contradict each other, if a variable lacks the others that it needs, or if a value is no number
/// in its range.
Start read_start(const Environment& environment, int local_ranks = kNoLocalRanks,
                 MpiSupport mpi = mpi_support());

/// Whether this process tells what every rank of its job would: true of the first, and if the rank
/// is unknown.
bool speaks_for_job();

/// Throws zero::Error unless MPI's world has as many ranks as the variables say: an MPI library
/// that does not recognise its launcher makes each process a world of one.
void check_mpi_world(const Start& start, int size);

/// The secret of ranks that meet in rank 0's store, from ZERO_JOB_SECRET or the file that
/// ZERO_JOB_SECRET_FILE names; nothing if neither is set. Throws zero::Error if both are set, if
/// the secret is too short, or if others may read its file.
std::optional<JobSecret> read_job_secret(const Environment& environment);

/// Throws zero::Error if other ranks should have been started, and nothing has started them.
void check_started(const Start& start);

/// Throws zero::Error if the ranks, on several hosts as their launcher says, have nothing through
/// which those that compute on the CPU could talk. Needs no other rank.
void check_cpu_ranks_can_talk(const Start& start);
/// The same once the ranks have met; on all ranks. Ranks of GPUs may meet without.
void check_cpu_ranks_can_talk(const Communicator& ranks);

/// What carries values between hosts if MPI did not start the ranks.
enum class BetweenHosts {
  nccl,  ///< ranks of GPUs: until NCCL connects them they have a store
  mpi,   ///< ranks of CPUs: they form a job of MPI, if each can
};

/// Runs body(communicator) as the rank or ranks of this process and returns its status; of several
/// threads, the largest. Throws zero::Error if the ranks do not meet. `report` is that of
/// TcpStore::Options; the first two ranks of each host use it.
int run_ranks(const Start& start, BetweenHosts between, int* argc, char*** argv,
              const std::function<int(Communicator&)>& body,
              const std::function<void(const std::string&)>& report = {});

/// The backend of run_ranks' communicator, for plans of `world` ranks.
BackendKind planned_backend(const Start& start, int world);

/// The first host of a Slurm node list: "gpu-003" of "gpu-[003-010,12],login". Throws zero::Error
/// if there is none.
std::string first_host(std::string_view node_list);

}  // namespace zero
