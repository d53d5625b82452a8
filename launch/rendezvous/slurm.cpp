// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/slurm.h"

#include "base/error.h"

namespace zero {

std::string first_host(std::string_view node_list) {
  std::string host;
  std::string_view rest = node_list;
  while (!rest.empty() && rest.front() != ',') {
    if (rest.front() != '[') {
      host.push_back(rest.front());
      rest.remove_prefix(1);
      continue;
    }
    const std::size_t end = rest.find(']');
    ZERO_CHECK(end != std::string_view::npos, "the node list \"{}\" has a [ without its ]",
               node_list);
    const std::string_view numbers = rest.substr(1, end - 1);
    host += numbers.substr(0, numbers.find_first_of("-,"));
    rest.remove_prefix(end + 1);
  }
  ZERO_CHECK(!host.empty(), "the node list \"{}\" names no host", node_list);
  return host;
}

int port_of_job(int job) {
  constexpr int kFirst = 20'000;
  constexpr int kPorts = 10'000;
  return kFirst + job % kPorts;
}

}  // namespace zero
