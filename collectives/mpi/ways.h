// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "collectives/host/group.h"
#include "collectives/mpi/hosts.h"
#include "collectives/mpi/link.h"
#include "collectives/mpi/messages.h"

namespace zero::mpi {

/// How the ranks of one group talk: through memory that they share where one host holds them all;
/// where a host holds some of them, through both; in MPI messages alone otherwise, or where a
/// system refuses to share.
struct Ways {
  /// Collective over `group`, which it takes over.
  Ways(Session& session, Group group, const Options& options,
       std::shared_ptr<const CallContext> context);
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;

  /// Every rank's line of text, in rank order. Collective, while no call is under way.
  std::vector<std::string> exchange(const std::string& mine) const;
  /// Calls from now on are of this step.
  void set_step(std::int64_t step);
  /// Comes before what MPI does in its own way, without limits: ranks that wait there wait for
  /// nobody who has not come.
  void meet(std::string_view purpose);

  Link link;
  std::unique_ptr<host::Group> host;     ///< all ranks are on one host, and share memory
  std::unique_ptr<Hosts> hosts;          ///< they are on several, some together
  std::unique_ptr<Messages> messages;    ///< otherwise
  std::shared_ptr<host::Memory> memory;  ///< null where nothing is shared
  std::string transport;                 ///< as Communicator says it
  int local_rank = 0;
  int local_size = 1;

 private:
  /// Shares memory; gives "" or, the same on all ranks, the reason why not.
  std::string share(Session& session, HostPlan plan);
  void keep_messages_moving(host::Group& group);

  std::shared_ptr<const CallContext> context_;
};

}  // namespace zero::mpi
