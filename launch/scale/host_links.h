// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/communicator.h"
#include "collectives/ranks_of_hosts.h"
#include "launch/scale/preflight_line.h"

namespace zero {

/// A measured link between the first ranks of two hosts.
struct HostLink {
  int from = 0;  ///< numbers of the hosts
  int to = 0;
  double latency = 0;           ///< seconds, of a small value one way
  double bytes_per_second = 0;  ///< one way, the slower one
  double offset = 0;            ///< seconds that the clock of `to` is ahead
  double uncertainty = 0;       ///< of the offset
};

/// Measures links by messages to and fro: all of up to eight hosts; of more, those from the first
/// host to each and from each to the next. The same on all ranks. Collective.
std::vector<HostLink> measure_links(Communicator& ranks, Device& device, const RanksOfHosts& hosts,
                                    const PreflightQuestion& question);

// What is right and wrong with them, between ranks on `device`.

PreflightLine links_line(const RanksOfHosts& hosts, const std::vector<HostLink>& links,
                         DeviceKind device);
PreflightLine clocks_line(const RanksOfHosts& hosts, const std::vector<HostLink>& links);

}  // namespace zero
