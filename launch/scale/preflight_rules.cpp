// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/message_text.h"
#include "launch/rendezvous/same_build.h"
#include "launch/scale/rank_facts.h"

namespace zero {
namespace {

using Ranks = std::vector<RankFacts>;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// NCCL's ranks of one host talk through /dev/shm; containers have 64 MiB of it.
constexpr std::int64_t kSharedMemoryOfRank = 32 * kMiB;
/// RDMA locks the memory that it reads and writes.
constexpr std::int64_t kLockedMemory = 1024 * kMiB;

PreflightLine hosts_line(const Ranks& ranks, const PreflightQuestion& question) {
  std::vector<std::string> texts;
  std::set<std::size_t> sizes;
  const RanksOfHosts hosts = hosts_of(ranks);
  for (int host = 0; host < hosts.hosts(); ++host) {
    const std::size_t of_host = hosts.ranks_of(host).size();
    texts.push_back(fmt::format("{} ({})", hosts.name(host),
                                counted(std::ssize(hosts.ranks_of(host)), "rank")));
    sizes.insert(of_host);
  }
  PreflightLine line{.name = "hosts", .text = fmt::format("{}", fmt::join(texts, ", "))};
  if (question.hosts > 0 && hosts.hosts() != question.hosts) {
    line.ok = false;
    line.text += fmt::format(
        "; expected {}: hosts of one name count as one, and ranks of a launcher that stays on its "
        "host never meet others",
        counted(question.hosts, "host"));
  } else if (sizes.size() > 1) {
    line.ok = false;
    line.text += "; expected as many ranks on each host";
  }
  return line;
}

PreflightLine program_line(const Ranks& ranks) {
  std::vector<RankProgram> programs;
  for (const RankFacts& rank : ranks) programs.push_back({rank.host, rank.version, rank.build});
  const std::string other = other_program(programs);
  return {other.empty(), "program",
          other.empty() ? fmt::format("zero {}, one build", ranks[0].version) : other};
}

/// One value of all ranks, or the first rank that has another.
PreflightLine same_line(const Ranks& ranks, std::string name, std::string RankFacts::*value) {
  const auto other = std::ranges::find_if(
      ranks, [&](const RankFacts& each) { return each.*value != ranks[0].*value; });
  if (other == ranks.end()) return {.name = std::move(name), .text = ranks[0].*value};
  return {false, std::move(name),
          fmt::format("{} on host {} (rank {}), expected {} as on host {}", (*other).*value,
                      other->host, other - ranks.begin(), ranks[0].*value, ranks[0].host)};
}

/// Compares "12.4" and "13.0" as numbers.
bool older(const std::string& one, const std::string& other) {
  const auto number = [](const std::string& text) {
    const std::size_t dot = text.find('.');
    const int minor = dot == std::string::npos ? 0 : std::atoi(text.c_str() + dot + 1);
    return std::pair(std::atoi(text.c_str()), minor);
  };
  return number(one) < number(other);
}

PreflightLine cuda_line(const Ranks& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFacts& each = ranks[rank];
    // A runtime runs on every driver of its major version.
    const std::string least = each.runtime.substr(0, each.runtime.find('.'));
    if (each.driver != "none" && !older(each.driver, least)) continue;
    return {false, "CUDA",
            fmt::format("the driver on host {} (rank {}) supports {}, expected CUDA {}, which this "
                        "build has, or newer: install a newer driver, or a build for this one",
                        each.host, rank, each.driver, each.runtime)};
  }
  return {.name = "CUDA",
          .text = fmt::format("runtime {}, drivers for {} and newer", ranks[0].runtime,
                              std::ranges::min_element(ranks, older, &RankFacts::driver)->driver)};
}

PreflightLine gpus_line(const Ranks& ranks) {
  std::map<std::string, std::size_t> owners;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankFacts& each = ranks[rank];
    const auto wrong = [&](const std::string& what) {
      return PreflightLine{false, "GPUs",
                           fmt::format("rank {} on host {}: {}", rank, each.host, what)};
    };
    if (!each.gpu.starts_with("GPU-")) {
      return wrong(fmt::format("sees {}: {}; expected one for each rank of its host",
                               counted(each.gpus, "GPU"), each.gpu));
    }
    const auto [owner, first] = owners.emplace(each.gpu, rank);
    if (!first) {
      return wrong(
          fmt::format("has {}, which rank {} has too; expected a GPU for each rank (srun "
                      "--gpu-bind=none, no CUDA_VISIBLE_DEVICES)",
                      each.gpu, owner->second));
    }
    if (each.kind != ranks[0].kind) {
      return wrong(fmt::format("has a {}, expected {} as rank 0 has", each.kind, ranks[0].kind));
    }
  }
  return {.name = "GPUs", .text = fmt::format("{} x {}", ranks.size(), ranks[0].kind)};
}

/// Each limit of a host that its ranks will meet.
PreflightLine limits_line(const Ranks& ranks, bool of_gpus) {
  const RanksOfHosts hosts = hosts_of(ranks);
  for (int number = 0; number < hosts.hosts(); ++number) {
    const std::string& host = hosts.name(number);
    const std::vector<int>& of_host = hosts.ranks_of(number);
    const RankFacts& first = ranks[static_cast<std::size_t>(of_host.front())];
    const std::int64_t shared = kSharedMemoryOfRank * std::ssize(of_host);
    if (of_gpus && first.shared_memory < shared) {
      return {false, "limits",
              fmt::format("/dev/shm on host {} has {} MiB, expected {} for {}: start the container "
                          "with --shm-size=1g, or --ipc=host",
                          host, first.shared_memory / kMiB, shared / kMiB,
                          counted(std::ssize(of_host), "rank"))};
    }
    if (first.infiniband && first.locked_memory != RankFacts::kUnlimited &&
        first.locked_memory < kLockedMemory) {
      return {false, "limits",
              fmt::format("ranks on host {} may lock {} MiB of memory, and it has RDMA devices, "
                          "which need it unlimited: set memlock in /etc/security/limits.conf, in "
                          "slurmd's unit, or --ulimit memlock=-1 of the container; a pod's root "
                          "needs the capability IPC_LOCK (securityContext) instead",
                          host, first.locked_memory / kMiB)};
    }
  }
  return {.name = "limits", .text = "memory to lock and to share"};
}

/// An interface with one address on every host reaches no other host.
PreflightLine addresses_line(const Ranks& ranks) {
  std::map<std::string, std::string> owners;
  std::vector<std::string> texts;
  const RanksOfHosts hosts = hosts_of(ranks);
  for (int number = 0; number < hosts.hosts(); ++number) {
    const std::string& host = hosts.name(number);
    for (const auto& [interface, address] :
         ranks[static_cast<std::size_t>(hosts.first_rank(number))].addresses) {
      const auto [owner, first] = owners.emplace(address, host);
      if (!first) {
        return {
            false, "addresses",
            fmt::format("{} of interface {} is an address of {} and of {}: exclude the interface "
                        "(NCCL_SOCKET_IFNAME=^docker,lo,virbr,{}, "
                        "OMPI_MCA_btl_tcp_if_exclude=lo,{}, OMPI_MCA_oob_tcp_if_exclude=lo,{})",
                        address, interface, owner->second, host, interface, interface, interface)};
      }
      texts.push_back(fmt::format("{} {} {}", host, interface, address));
    }
  }
  return {.name = "addresses", .text = fmt::format("{}", fmt::join(texts, ", "))};
}

}  // namespace

RanksOfHosts hosts_of(const Ranks& ranks) {
  std::vector<std::string> names;
  for (const RankFacts& rank : ranks) names.push_back(rank.host);
  return RanksOfHosts(names);
}

bool nccl_may_start(const std::vector<PreflightLine>& lines) {
  return std::ranges::all_of(lines, [](const PreflightLine& line) {
    return line.ok || line.name == "addresses" || line.name == "folder";
  });
}

std::vector<PreflightLine> judge(const Ranks& ranks, const PreflightQuestion& question) {
  std::vector<PreflightLine> lines{hosts_line(ranks, question), program_line(ranks),
                                   same_line(ranks, "MPI", &RankFacts::mpi)};
  const bool of_gpus = question.device == DeviceKind::cuda;
  if (of_gpus) {
    lines.push_back(cuda_line(ranks));
    PreflightLine of_nccl = same_line(ranks, "NCCL", &RankFacts::nccl);
    of_nccl.ok = of_nccl.ok && (ranks[0].has_nccl || ranks.size() == 1);
    lines.push_back(std::move(of_nccl));
    lines.push_back(gpus_line(ranks));
  }
  lines.push_back(limits_line(ranks, of_gpus));
  lines.push_back(addresses_line(ranks));
  return lines;
}

}  // namespace zero
