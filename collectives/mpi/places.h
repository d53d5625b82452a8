// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/host/process.h"
#include "collectives/long_wait.h"

namespace zero::mpi {

/// Where each rank of a group runs: for messages about ranks that do not come.
class Places {
 public:
  /// What the others need to know of this process: one line of text.
  static std::string mine();

  Places() = default;
  /// From all ranks' lines; hosts[r] is equal for ranks of one host, of which this is `rank`.
  Places(const std::vector<std::string>& lines, const std::vector<int>& hosts, int rank);

  /// "process 4711 is stopped", "on host b: unknown"
  AbsentRank absent(int rank) const;

 private:
  struct Place {
    bool visible = false;  // its process can be looked at from here
    host::Process process{};
    std::string host;
  };
  std::vector<Place> places_;
};

}  // namespace zero::mpi
