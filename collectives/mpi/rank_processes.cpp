// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/mpi/rank_processes.h"

#include <fmt/format.h>

#include <set>
#include <sstream>

#include "base/host_name.h"

namespace zero::mpi {
std::string RankProcesses::mine() {
  const host::Process self = host::this_process();
  return fmt::format("{} {} {} {}", self.id, self.start, host::process_namespace(), host_name());
}

RankProcesses::RankProcesses(const std::vector<std::string>& lines, const std::vector<int>& hosts,
                             int rank)
    : rank_(rank), hosts_(static_cast<int>(std::set(hosts.begin(), hosts.end()).size())) {
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Peer& peer = peers_.emplace_back();
    peer.on = hosts[i];
    std::string space;
    std::istringstream words(lines[i]);
    words >> peer.process.id >> peer.process.start >> space >> peer.host;
    peer.visible =
        hosts[i] == hosts[static_cast<std::size_t>(rank)] && space == host::process_namespace();
  }
}

AbsentRank RankProcesses::absent(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return {rank, peer.visible ? host::described(peer.process)
                             : fmt::format("on host {}: unknown", peer.host)};
}

bool RankProcesses::on_this_host(int rank) const {
  const auto on = [&](int each) { return peers_[static_cast<std::size_t>(each)].on; };
  return on(rank) == on(rank_);
}

}  // namespace zero::mpi
