// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/watch/heartbeat_link.h"

namespace zero {

class Communicator;
class Device;
class HostPeers;

/// The outcome of linking the hosts of a job.
struct HostConnection {
  std::unique_ptr<HeartbeatLink> link{};  ///< null: this rank has none
  /// Which hosts have no link, and why; empty: all have, or the job is on one host. The same on all
  /// ranks.
  std::string warning{};
};

/// Links the first ranks of all hosts whose ranks watch each other. The first of them listens, at
/// any free port, and only if there are several; the others try its addresses in turn, those that
/// are most like their own first, for a few seconds. Both prove a secret to each other: the job's
/// (read_job_secret()) if all first ranks have one, else one that the first of them draws and gives
/// to all ranks through `world`, as private as the job's own values. `addresses`: of this host for
/// others; empty: those of its networks. Collective over `world`, all ranks of the job, on the
/// thread that uses `world`. The hub's server has a thread from here on, a link none before its
/// start().
HostConnection connect_hosts(Communicator& world, Device& device, const HostPeers& peers,
                             const std::vector<std::string>& addresses = {});

}  // namespace zero
