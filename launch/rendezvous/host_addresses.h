// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "launch/process/environment.h"

namespace zero {

/// An address of a host on a network.
struct HostAddress {
  std::string interface;
  std::string address;  ///< of IPv4, or a global one of IPv6

  friend bool operator==(const HostAddress&, const HostAddress&) = default;
};

/// Whether ranks may talk through the address: NCCL by NCCL_SOCKET_IFNAME, or MPI by
/// OMPI_MCA_btl_tcp_if_include or OMPI_MCA_btl_tcp_if_exclude. An interface that no variable
/// includes by name must besides be no bridge of containers, and the address not link-local, as
/// these are alike on all hosts and lead to no other.
bool carries_ranks(const HostAddress& address, const Environment& environment);

/// Those of this host that carry ranks, without the loopback's.
std::vector<HostAddress> host_addresses(const Environment& environment);

}  // namespace zero
