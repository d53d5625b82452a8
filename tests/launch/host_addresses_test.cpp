// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/host_addresses.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/launch/environment_of.h"

namespace zero {
namespace {

/// The interfaces of hosts by which ranks talk, with those variables set.
std::string carriers(const std::map<std::string, std::string>& variables) {
  const std::vector<HostAddress> all{{"eth0", "10.0.0.7"},        {"ib0", "192.168.4.7"},
                                     {"docker0", "172.17.0.1"},   {"br-0123456789ab", "172.18.0.1"},
                                     {"virbr0", "192.168.122.1"}, {"cni0", "10.244.0.1"},
                                     {"eth2", "169.254.3.4"},     {"br-ex", "10.0.1.7"},
                                     {"eth0", "fd00::7"}};
  const Environment environment = testing::environment_of(variables);
  std::string found;
  for (const HostAddress& each : all) {
    if (carries_ranks(each, environment)) found += each.interface + " ";
  }
  return found;
}

TEST(HostAddresses, AreThoseByWhichRanksTalk) {
  const std::string nccl = "NCCL_SOCKET_IFNAME";
  const std::string include = "OMPI_MCA_btl_tcp_if_include";
  const std::string exclude = "OMPI_MCA_btl_tcp_if_exclude";
  EXPECT_EQ(carriers({}), "eth0 ib0 br-ex eth0 ");
  EXPECT_EQ(carriers({{nccl, "eth0"}}), "eth0 eth0 ");
  EXPECT_EQ(carriers({{nccl, "eth"}}), "eth0 eth2 eth0 ") << "the beginnings of names";
  EXPECT_EQ(carriers({{nccl, "=eth"}}), "");
  EXPECT_EQ(carriers({{nccl, "^docker0,lo,ib"}}), "eth0 br-ex eth0 ");
  EXPECT_EQ(carriers({{nccl, "docker0:5000"}}), "docker0 ");
  EXPECT_EQ(carriers({{exclude, "lo,ib0,10.0.1.0/24"}}), "eth0 eth0 ");
  EXPECT_EQ(carriers({{include, "10.0.0.0/16"}, {exclude, "eth0"}}), "eth0 br-ex ");
  EXPECT_EQ(carriers({{nccl, "ib0"}, {include, "eth0"}}), "eth0 ib0 eth0 ") << "each has its own";
  EXPECT_EQ(carriers({{nccl, "^ib0"}, {exclude, "eth0,ib0"}}), "eth0 br-ex eth0 ");
}

}  // namespace
}  // namespace zero
