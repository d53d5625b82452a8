// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "collectives/mpi/job_socket.h"
#include "collectives/ranks_of_hosts.h"

namespace zero::mpi {

/// The ranks of a job and their hosts, as one host's server describes them to MPI.
struct JobLayout {
  std::string name;
  RanksOfHosts ranks;
  int host = 0;  ///< this one's number

  /// For from(), in another process.
  std::string text() const;
  static JobLayout from(const std::string& text);
};

/// Serves the ranks of one host in place of MPI's launcher (PMIx), in a process of its own, until
/// the socket's other end is gone. Sends, for each rank of the host, the variables it needs: a "+"
/// and a NAME=VALUE a line; or a "!" and the reason why there are none. Then, at each fence of
/// the job, it sends what the host's ranks have for the other hosts, and expects in return a "+"
/// and what all hosts have, in their order, or a "!" if they cannot have it.
[[noreturn]] void serve_pmix(const JobLayout& layout, JobSocket socket) noexcept;

}  // namespace zero::mpi
