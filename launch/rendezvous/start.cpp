// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/start.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/host.h"
#include "collectives/agreement.h"
#include "collectives/backends.h"
#include "collectives/communicator.h"
#include "launch/process/configuration_error.h"
#include "launch/rendezvous/launcher_variables.h"
#include "launch/rendezvous/store/tcp_store.h"
#include "launch/rendezvous/store/wire.h"

namespace zero {
namespace {

constexpr int kPorts = 65'535;
constexpr std::string_view kTalkThroughMpi =
    "the ranks are on several hosts and compute on the CPU, and between hosts CPUs talk through "
    "MPI alone: start them with mpirun, or with srun --mpi=pmix";

/// The value of a variable from 0 to `most` that is required because of `because`.
int needed(const Environment& environment, const std::string& name, int most,
           const std::string& because) {
  const std::optional<int> value = number_in(environment, name, 0, most);
  ZERO_CHECK(value.has_value(), "the variable {} is not set, though {}; set it too, or neither",
             name, because);
  return *value;
}

void check_rank(const Start& start, const std::string& rank, const std::string& world) {
  ZERO_CHECK(start.world >= 1, "the variable {} is 0; expected at least 1", world);
  ZERO_CHECK(start.rank < start.world,
             "the variable {} is {}, {} is {}; ranks are numbered from 0 to {}", rank, start.rank,
             world, start.world, start.world - 1);
  ZERO_CHECK(start.local_rank < start.local_world && start.local_world <= start.world,
             "rank {} of {} is said to be rank {} of {} on its host; the numbers on a host are "
             "from 0 on, below how many ranks it has",
             start.rank, start.world, start.local_rank, start.local_world);
}

/// The name that the launcher gave the job; the same on all ranks that it started.
std::string job_name(const Environment& environment) {
  if (const auto run = environment("TORCHELASTIC_RUN_ID")) {
    ZERO_CHECK(run->size() <= store_wire::kMostJobBytes,
               "the variable TORCHELASTIC_RUN_ID has {} bytes, expected at most {}; give torchrun "
               "a shorter --rdzv-id",
               run->size(), store_wire::kMostJobBytes);
    return *run;
  }
  // SLURM_JOB_ID differs for every task of a job array.
  const auto job = environment("SLURM_JOB_ID");
  if (!job) return "";
  const auto step = environment("SLURM_STEP_ID");
  const std::string name = step ? *job + "." + *step : *job;
  return name.substr(0, store_wire::kMostJobBytes);
}

/// The start according to mpirun's variables; nothing unless they give the number of ranks. Slurm
/// and other launchers set only the rank, for programs with and without MPI.
std::optional<Start> of_mpirun(const Environment& environment) {
  const auto number = [](const std::optional<Said>& said, int otherwise) {
    return said ? said->value : otherwise;
  };
  const auto world = world_of_mpi(environment);
  if (!world) return std::nullopt;
  Start start{.by = Start::By::mpirun, .world = world->value};
  start.rank = number(rank_of_mpi(environment), 0);
  start.local_rank = number(
      first_said(environment,
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK"}),
      start.rank);
  start.local_world = number(
      first_said(environment,
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"}),
      start.world);
  return start;
}

std::optional<Start> of_variables(const Environment& environment) {
  const std::optional<int> rank = number_in(environment, "RANK");
  const std::optional<int> world = number_in(environment, "WORLD_SIZE");
  if (!rank && !world) return std::nullopt;
  // A WORLD_SIZE alone, which clouds preset, is no word beside a launcher's own.
  if (!rank && (world_of_mpi(environment) || in_step_of_srun(environment))) return std::nullopt;
  Start start{.by = Start::By::variables};
  start.rank = rank ? *rank : needed(environment, "RANK", kAnyRanks, "WORLD_SIZE is");
  start.world = world ? *world : needed(environment, "WORLD_SIZE", kAnyRanks, "RANK is");
  const std::string reason = "RANK and WORLD_SIZE are";
  start.local_rank = needed(environment, "LOCAL_RANK", kAnyRanks, reason);
  const auto local_world = number_in(environment, "LOCAL_WORLD_SIZE", 1);
  start.local_world = local_world.value_or(start.world);
  check_rank(start, "RANK", "WORLD_SIZE");
  if (local_world) {
    start.spread = *local_world == start.world ? Spread::one_host : Spread::several_hosts;
  }
  const auto address = environment("MASTER_ADDR");
  ZERO_CHECK(address.has_value(),
             "the variable MASTER_ADDR is not set, though {}; set it to the address of rank 0's "
             "host",
             reason);
  start.address = *address;
  start.port = needed(environment, "MASTER_PORT", kPorts, reason);
  if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    ++start.port;  // an agent itself listens on MASTER_PORT, on the host of --rdzv-endpoint
    start.hint =
        "; torchrun gave its ranks the place where its agents meet, which need not be rank 0's: "
        "start torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on every host";
  }
  ZERO_CHECK(start.port >= 1 && start.port <= kPorts,
             "the ranks would meet at port {}; give another MASTER_PORT", start.port);
  start.job = job_name(environment);
  return start;
}

/// The tasks for which a job of Slurm has resources.
int tasks_of_slurm(const Environment& environment) {
  if (const auto tasks = number_in(environment, "SLURM_NTASKS", 1)) return *tasks;
  const auto per_host = number_in(environment, "SLURM_NTASKS_PER_NODE", 1);
  return per_host.value_or(1) * number_in(environment, "SLURM_NNODES", 1).value_or(1);
}

std::optional<Start> of_slurm(const Environment& environment) {
  const bool in_job =
      environment("SLURM_JOB_ID") || (environment("SLURM_NTASKS") && !environment("SLURM_PROCID"));
  if (in_job && !in_step_of_srun(environment)) {
    return Start{.tasks_to_start = tasks_of_slurm(environment)};
  }
  const std::optional<int> rank = number_in(environment, "SLURM_PROCID");
  if (!rank) return std::nullopt;
  const std::string reason = "SLURM_PROCID is";
  Start start{.by = Start::By::slurm, .rank = *rank};
  start.world = needed(environment, "SLURM_NTASKS", kAnyRanks, reason);
  start.local_rank = needed(environment, "SLURM_LOCALID", kAnyRanks, reason);
  const auto hosts = number_in(environment, "SLURM_NNODES", 1);
  start.local_world =
      std::max(start.local_rank + 1, static_cast<int>(div_ceil(start.world, hosts.value_or(1))));
  if (hosts) start.spread = *hosts == 1 ? Spread::one_host : Spread::several_hosts;
  check_rank(start, "SLURM_PROCID", "SLURM_NTASKS");
  if (start.world == 1) return start;
  const auto master = environment("MASTER_ADDR");
  // A step may have fewer hosts than its job.
  const auto hosts_of_step = environment("SLURM_STEP_NODELIST");
  const auto hosts_of_job = hosts_of_step ? hosts_of_step : environment("SLURM_NODELIST");
  ZERO_CHECK(master || hosts_of_job,
             "neither SLURM_NODELIST nor MASTER_ADDR is set, though {}; one of them must say where "
             "rank 0 is",
             reason);
  start.address = master ? *master : first_host(*hosts_of_job);
  start.port = number_in(environment, "MASTER_PORT", 1, kPorts).value_or(0);
  if (start.port == 0) {
    // In 20000 to 29999 and equal on all hosts of the job.
    start.port = 20'000 + needed(environment, "SLURM_JOB_ID", std::numeric_limits<int>::max(),
                                 reason + " and MASTER_PORT, which would take its place, is not") %
                              10'000;
  }
  start.job = job_name(environment);
  return start;
}

/// The start according to Slurm's variables, unless PMIX_RANK or PMI_RANK, of another launcher than
/// Slurm itself, shows that MPI knows more.
Start of_slurm_or_none(const Environment& environment, MpiSupport mpi) {
  const std::optional<Start> by_slurm = of_slurm(environment);
  std::optional<Said> rank;
  if (!pmi_is_of_slurm(environment)) rank = first_said(environment, {"PMIX_RANK", "PMI_RANK"});
  const bool in_step = by_slurm && by_slurm->by == Start::By::slurm;
  if (!rank || (by_slurm && !in_step)) return by_slurm.value_or(Start{});
  if (mpi == MpiSupport::built_in) {
    Start start = by_slurm.value_or(Start{.rank = rank->value, .world_is_said = false});
    start.by = Start::By::mpirun;
    return start;
  }
  ZERO_CHECK(by_slurm || rank->value == 0,
             "PMIX_RANK or PMI_RANK is {}, so a launcher started several processes, but this build "
             "has no MPI and no variable says how many: build it with -DZERO_MPI=ON, or set RANK, "
             "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT",
             rank->value);
  return by_slurm.value_or(Start{});
}

Start of_threads(const Environment& environment, int local_ranks) {
  const auto refuse = [&](const std::optional<Start>& start, std::string_view launcher) {
    ZERO_CHECK(!start || start->world == 1,
               "--local-ranks {} makes all ranks in one process, but {} started {} of them; give "
               "one or the other",
               local_ranks, launcher, start->world);
  };
  refuse(of_mpirun(environment), "mpirun");
  if (environment("RANK")) {  // also of a pod, whose operator numbers pods and not processes
    const int world = needed(environment, "WORLD_SIZE", kAnyRanks, "RANK is");
    refuse(Start{.world = world}, "RANK and WORLD_SIZE say that a launcher");
  }
  refuse(of_slurm(environment), "srun");
  Start start{.by = Start::By::threads, .world = local_ranks};
  start.local_world = local_ranks;
  return start;
}

/// The same on all ranks: MPI if every rank asks for it, and can.
BetweenHosts agreed(const StoreRank& self, BetweenHosts between) {
  const bool mine = between == BetweenHosts::mpi && mpi::can_form_job();
  const std::vector<std::string> all = all_gather_texts(self, "start/mpi", mine ? "yes" : "no");
  return std::ranges::count(all, "yes") == self.size ? BetweenHosts::mpi : BetweenHosts::nccl;
}

/// The job's secret. Slurm knows the hosts: where there are several, every rank refuses to start
/// without one, as no other start of the job would do better.
std::optional<JobSecret> needed_job_secret(const Start& start) {
  auto secret = read_job_secret(process_environment());
  const bool by_slurm = start.by == Start::By::slurm;
  ZERO_CHECK(secret || !by_slurm || start.spread != Spread::several_hosts,
             "[rank {}] srun started the ranks on several hosts, and this job has no secret, which "
             "they need to meet there: {}",
             start.rank, kMakeJobSecret);
  return secret;
}

}  // namespace

MpiSupport mpi_support() { return mpi::available() ? MpiSupport::built_in : MpiSupport::missing; }

Start read_start(const Environment& environment, int local_ranks, MpiSupport mpi) {
  if (local_ranks != kNoLocalRanks) return of_threads(environment, local_ranks);
  check_launchers_agree(environment);
  const auto by_mpirun = of_mpirun(environment);
  const auto by_variables = of_variables(environment);
  if (by_mpirun && mpi == MpiSupport::built_in) return *by_mpirun;
  if (by_variables) return *by_variables;
  if (by_mpirun) {
    ZERO_CHECK(by_mpirun->world == 1,
               "mpirun started {} processes, but this build has no MPI: build it with "
               "-DZERO_MPI=ON, or set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; "
               "of srun, give --mpi=none",
               by_mpirun->world);
    return {};
  }
  return of_slurm_or_none(environment, mpi);
}

void check_mpi_world(const Start& start, int size) {
  ZERO_CHECK(!start.world_is_said || size == start.world,
             "[rank {}] MPI made a world of {} rank(s), the launcher's variables say that this is "
             "rank {} of {}: the MPI of this build does not understand what started it; use that "
             "MPI's own mpirun, or srun --mpi=pmix",
             start.rank, size, start.rank, start.world);
}

std::optional<JobSecret> read_job_secret(const Environment& environment) {
  const auto secret = environment("ZERO_JOB_SECRET");
  const auto file = environment("ZERO_JOB_SECRET_FILE");
  ZERO_CHECK(!secret || !file,
             "both ZERO_JOB_SECRET and ZERO_JOB_SECRET_FILE are set; unset one of them");
  if (file) return JobSecret::of_file(*file);
  if (!secret) return std::nullopt;
  return JobSecret(*secret, "the variable ZERO_JOB_SECRET");
}

void check_started(const Start& start) {
  ZERO_CHECK(start.tasks_to_start == 1,
             "Slurm has given this job {0} tasks, and this process, which srun did not start, is "
             "alone: start the ranks with srun (srun -n {0} ...) or mpirun; for one rank here, or "
             "several in this process, give --local-ranks",
             start.tasks_to_start);
}

void check_cpu_ranks_can_talk(const Start& start) {
  const bool by_store = start.by == Start::By::variables || start.by == Start::By::slurm;
  ZERO_CHECK(
      !by_store || start.world == 1 || start.spread != Spread::several_hosts || mpi::can_form_job(),
      "[rank {}] {}; or build with {}", start.rank, kTalkThroughMpi,
      mpi::available() ? "PMIx (libpmix-dev)" : "-DZERO_MPI=ON");
}

void check_cpu_ranks_can_talk(const Communicator& ranks) {
  if (ranks.backend() == BackendKind::store) throw AgreedError(std::string(kTalkThroughMpi));
}

int run_ranks(const Start& start, BetweenHosts between, int* argc, char*** argv,
              const std::function<int(Communicator&)>& body,
              const std::function<void(const std::string&)>& report) {
  checking_configuration([&] { check_started(start); });
  if (start.by == Start::By::mpirun) {
    const auto world = mpi::world(argc, argv);
    check_mpi_world(start, world->size());
    return body(*world);
  }
  if (start.world == 1) return body(*local::single());
  if (start.by == Start::By::threads) {
    std::mutex mutex;
    int status = 0;
    local::run(start.world, [&](Communicator& communicator) {
      const int mine = body(communicator);
      const std::scoped_lock lock(mutex);
      status = std::max(status, mine);
    });
    return status;
  }
  auto secret = checking_configuration([&] { return needed_job_secret(start); });
  std::shared_ptr<mpi::JobServer> server;
  if (between == BetweenHosts::mpi && mpi::can_form_job()) server = mpi::start_job_server();
  // Two ranks a host tell of long waits: one that is missing cannot, and all need not.
  const bool reports = start.local_rank <= 1;
  TcpStore store({.host = start.address,
                  .port = start.port,
                  .rank = start.rank,
                  .world = start.world,
                  .job = start.job,
                  .spread = start.spread,
                  .secret = std::move(secret),
                  .report = reports ? report : nullptr,
                  .hint = start.hint});
  const StoreRank self{store, start.rank, start.world};
  const std::vector<std::string> hosts = all_gather_texts(self, "start/host", host_name());
  const bool on_one_host = std::ranges::count(hosts, hosts.front()) == start.world;
  if (on_one_host || agreed(self, between) == BetweenHosts::nccl) {
    server.reset();
    return body(*(on_one_host ? host::world(self) : store_only::world(self, hosts)));
  }
  const auto job = mpi::form_job(self, hosts, std::move(server));
  const auto world = mpi::world(argc, argv);
  check_mpi_world(start, world->size());
  return body(*world);
}

BackendKind planned_backend(const Start& start, int world) {
  if (start.by == Start::By::threads || world == 1) return BackendKind::local;
  const bool forms_job = start.spread == Spread::several_hosts && mpi::can_form_job();
  if (start.world > 1 && start.by != Start::By::mpirun && !forms_job) return BackendKind::host;
  return mpi::available() ? BackendKind::mpi : BackendKind::local;
}

std::string first_host(std::string_view node_list) {
  std::string host;
  std::string_view rest = node_list;
  while (!rest.empty() && rest.front() != ',') {
    if (rest.front() != '[') {
      host.push_back(rest.front());
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t end = rest.find(']');
    ZERO_CHECK(end != std::string_view::npos, "the node list \"{}\" has a [ without its ]",
               node_list);
    const std::string_view numbers = rest.substr(1, end - 1);
    host += numbers.substr(0, numbers.find_first_of("-,"));
    rest.remove_prefix(end + 1);
  }
  ZERO_CHECK(!host.empty(), "the node list \"{}\" names no host", node_list);
  return host;
}

bool speaks_for_job() {
  try {
    return read_start(process_environment()).rank == 0;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace zero
