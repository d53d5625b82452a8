// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/mpi/job_socket.h"

namespace zero::mpi {

/// The ranks of a job and their hosts, as one host's server describes them to MPI.
struct JobLayout {
  std::string name;
  std::vector<std::string> hosts;  ///< by the host's number
  std::vector<int> host_of;        ///< the host's number of each rank
  int host = 0;                    ///< this one's number

  std::vector<int> ranks_of(int host) const;
};

/// Serves the ranks of one host in place of MPI's launcher (PMIx), in a process of its own, until
/// the socket's other end is gone. Sends, for each rank of the host, the variables it needs: a "+"
/// and a NAME=VALUE a line; or a "!" and the reason why there are none. Then, whenever the host's
/// ranks meet, it sends what they have for the other hosts, and expects in return a "+" and what
/// all hosts have, in their order, or a "!" if they cannot meet.
[[noreturn]] void serve_pmix(const JobLayout& layout, JobSocket socket) noexcept;

}  // namespace zero::mpi
