// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/cgroup.h"
#include "base/checked_math.h"
#include "base/host.h"
#include "collectives/host_values.h"
#include "launch/rendezvous/launcher_variables.h"

namespace zero {
namespace {

/// The affinity mask of process `id` (0: this thread); empty if the system does not report it.
std::vector<int> cores_of(pid_t id) {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(id, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// Physical cores among `logical`, counted by their sets of sibling threads; as many as logical
/// cores if the system does not report siblings.
int physical_cores(const std::vector<int>& logical) {
  std::set<std::string> found;
  for (const int core : logical) {
    std::ifstream file(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", core));
    if (std::string siblings; std::getline(file, siblings)) found.insert(siblings);
  }
  return static_cast<int>(found.empty() ? logical.size() : found.size());
}

/// The number of ranks that share this rank's mask, itself included.
int sharing(const CoreFacts& facts) {
  if (facts.allowed >= facts.launcher) return facts.local_ranks;
  return std::max(1, static_cast<int>(div_ceil(std::int64_t{facts.local_ranks} * facts.allowed,
                                               facts.launcher)));
}

/// The ranks, threads and cores of one host, and its quota.
struct HostUse {
  std::int64_t ranks = 0;
  std::int64_t threads = 0;
  std::set<int> cores{};
  double quota = 0;
};

double available(const HostUse& host) {
  const auto cores = static_cast<double>(host.cores.size());
  return host.quota > 0 ? std::min(host.quota, cores) : cores;
}

/// Whether srun has given the ranks their cores. Those of mpirun are no tasks, but its daemons may
/// be.
bool bound_by_srun(const Environment& environment) {
  return in_step_of_srun(environment) && !environment("OMPI_COMM_WORLD_SIZE");
}

std::string bound_text(const std::vector<int>& bound, const RankPlacement& first,
                       const Environment& environment) {
  const std::string remedy =
      bound_by_srun(environment)
          ? fmt::format("srun --cpus-per-task={}, or --cpu-bind=none", first.threads)
          : fmt::format("mpirun --bind-to none, or --map-by slot:PE={}", first.threads);
  return fmt::format(
      "rank {}{} computes with {} threads on {} core(s), to which the launcher has bound it: start "
      "with {}",
      bound.front(), bound.size() > 1 ? fmt::format(" (and {} more)", bound.size() - 1) : "",
      first.threads, first.cores.size(), remedy);
}

}  // namespace

int usable_cores() {
  const std::vector<int> cores = cores_of(0);
  return cores.empty() ? static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))
                       : static_cast<int>(cores.size());
}

CoreFacts core_facts(int local_ranks) {
  const std::vector<int> mine = cores_of(0);
  const int allowed = usable_cores();
  return {.allowed = allowed,
          .launcher = std::max(allowed, static_cast<int>(cores_of(::getppid()).size())),
          .physical = mine.empty() ? allowed : physical_cores(mine),
          .quota = cpu_quota(),
          .local_ranks = std::max(1, local_ranks)};
}

ThreadChoice choose_threads(const CoreFacts& facts) {
  const int sharers = sharing(facts);
  ThreadChoice choice;
  choice.threads = std::max(1, facts.physical / sharers);
  choice.why = fmt::format("{} {} / {} rank(s)", facts.physical,
                           facts.physical < facts.allowed ? "physical cores" : "cores", sharers);
  if (facts.allowed < facts.launcher) choice.why += " bound to them";
  if (!facts.quota) return choice;
  const int granted =
      std::max(1, static_cast<int>(std::floor(*facts.quota / facts.local_ranks + 1e-9)));
  if (granted < choice.threads) {
    choice.threads = granted;
    choice.why =
        fmt::format("{:.4g} cores by control group / {} rank(s)", *facts.quota, facts.local_ranks);
  }
  return choice;
}

std::vector<RankPlacement> gather_placements(Communicator& communicator, Device& device,
                                             int threads) {
  const std::string host = host_name();
  const double quota = std::round(1000 * cpu_quota().value_or(0)) / 1000;
  const nlohmann::json mine{XXH3_64bits(host.data(), host.size()), threads, quota, cores_of(0)};
  std::vector<RankPlacement> ranks;
  for (const std::string& text :
       all_gather_texts(communicator, device, mine.dump(), "where ranks compute")) {
    const auto said = nlohmann::json::parse(text);
    ranks.push_back({.host = static_cast<std::int64_t>(said[0].get<std::uint64_t>()),
                     .threads = said[1].get<std::int64_t>(),
                     .quota = said[2].get<double>(),
                     .cores = said[3].get<std::vector<int>>()});
  }
  return ranks;
}

PlacementReport judge_placements(const std::vector<RankPlacement>& ranks,
                                 const Environment& environment) {
  std::map<std::int64_t, HostUse> hosts;
  for (const RankPlacement& rank : ranks) {
    HostUse& host = hosts[rank.host];
    ++host.ranks;
    host.threads += rank.threads;
    host.cores.insert(rank.cores.begin(), rank.cores.end());
    host.quota = rank.quota;
  }
  PlacementReport report;
  std::vector<int> bound;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankPlacement& rank = ranks[i];
    const auto cores = static_cast<std::int64_t>(rank.cores.size());
    const bool others = hosts[rank.host].cores.size() > rank.cores.size();
    if (cores > 0 && cores < rank.threads && others) bound.push_back(static_cast<int>(i));
  }
  if (!bound.empty()) {
    const RankPlacement& first = ranks[static_cast<std::size_t>(bound.front())];
    report.warnings.push_back(bound_text(bound, first, environment));
  }
  for (const auto& [id, host] : hosts) {
    const double cores = available(host);
    if (cores == 0 || static_cast<double>(host.threads) <= cores || !report.shared.empty())
      continue;
    const std::string what = fmt::format("{} rank(s) with {} thread(s) in all share {:.4g} core(s)",
                                         host.ranks, host.threads, cores);
    report.shared =
        what + ": they take turns, so exposed communication includes waiting for a core";
    if (host.threads > host.ranks && bound.empty()) {
      report.warnings.push_back(fmt::format(
          "{}; lower run.threads (\"auto\" fits them), or if {}", what,
          bound_by_srun(environment)
              ? "Slurm gave the ranks too few, start srun with --cpus-per-task"
              : "mpirun bound the ranks, start it with --bind-to none or another --map-by"));
    }
  }
  return report;
}

}  // namespace zero
