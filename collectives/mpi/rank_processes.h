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

 private:
  struct Peer {
    bool visible = false;  // its process can be examined from here
    host::Process process{};
    std::string host;
  };
  std::vector<Peer> peers_;
};

}  // namespace zero::mpi
