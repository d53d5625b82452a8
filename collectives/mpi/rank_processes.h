// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/host/process.h"
#include "collectives/long_wait.h"

namespace zero::mpi {

/// The process and host of each rank of a group, for messages about ranks that do not come.
class RankProcesses {
 public:
  /// One line of text that describes this process to the others.
  static std::string mine();

  RankProcesses() = default;
  /// `lines`: mine() of every rank; hosts[r] is equal for ranks of one host; `rank`: this rank.
  RankProcesses(const std::vector<std::string>& lines, const std::vector<int>& hosts, int rank);

  /// "process 4711 is stopped", "on host b: unknown"
  AbsentRank absent(int rank) const;
  bool on_this_host(int rank) const;
  /// The number of hosts.
  int hosts() const { return hosts_; }

 private:
  struct Peer {
    int on = 0;            // the number of its host
    bool visible = false;  // its process can be examined from here
    host::Process process{};
    std::string host;
  };
  std::vector<Peer> peers_;
  int rank_ = 0;
  int hosts_ = 0;
};

}  // namespace zero::mpi
