// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends.h"

// Compiled in place of job.cpp if CMake found no MPI or no PMIx.
namespace zero::mpi {

bool can_form_job() { return false; }

std::shared_ptr<JobServer> start_job_server() { return nullptr; }

std::shared_ptr<void> form_job(const StoreRank& self, const std::vector<std::string>& hosts,
                               std::shared_ptr<JobServer> /*server*/) {
  fail("[rank {}] {} ranks cannot form a job of MPI: this build has no PMIx; install libpmix-dev",
       self.rank, hosts.size());
}

}  // namespace zero::mpi
