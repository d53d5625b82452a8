// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backends.h"
#include "collectives/stores.h"
#include "tests/errors.h"

namespace zero {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

/// A server that could not be started: there was no descriptor left.
std::shared_ptr<mpi::JobServer> no_server() {
  rlimit usual{};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = usual.rlim_max};
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  auto server = mpi::start_job_server();
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  return server;
}

TEST(JobOfMpi, TellsAllRanksAtOnceThatAHostHasNoServer) {
  if (!mpi::can_form_job()) GTEST_SKIP() << "this build has no PMIx";
  InProcessStore store;
  const std::vector<std::string> hosts{"a", "a", "b"};
  const std::vector<std::shared_ptr<mpi::JobServer>> servers{no_server(), nullptr, no_server()};
  std::vector<std::string> errors(hosts.size());
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        const StoreRank self{store, static_cast<int>(rank), static_cast<int>(hosts.size())};
        errors[rank] = error_of([&] { mpi::form_job(self, hosts, servers[rank]); });
      });
    }
  }
  EXPECT_THAT(errors, Each(HasSubstr("[rank 0] the ranks cannot form a job of MPI: cannot make a "
                                     "pair of sockets: ")));
}

}  // namespace
}  // namespace zero
