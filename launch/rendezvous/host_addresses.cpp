// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/host_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/network_v4.hpp>
#include <cerrno>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace zero {
namespace {

namespace ip = boost::asio::ip;

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&six)) bytes = &six;
  }
  if (bytes == nullptr) return "";
  const char* const made = ::inet_ntop(address.sa_family, bytes, text.data(), text.size());
  return made == nullptr ? "" : made;
}

/// Whether an address of IPv4 is in a network such as 10.0.0.0/16; false if either is none.
bool is_in_network(const std::string& address, const std::string& network) {
  boost::system::error_code no_address;
  boost::system::error_code no_network;
  const auto one = ip::make_address_v4(address, no_address);
  const auto other = ip::make_network_v4(network, no_network);
  return !no_address && !no_network &&
         ip::network_v4(one, other.prefix_length()).network() == other.network();
}

/// Which addresses a variable selects.
struct Selection {
  bool excludes = false;
  bool exact = false;  ///< names of interfaces, not their beginnings
  std::vector<std::string> list{};

  bool names(const HostAddress& address) const {
    return std::ranges::any_of(list, [&](const std::string& each) {
      return address.interface == each || (!exact && address.interface.starts_with(each)) ||
             is_in_network(address.address, each);
    });
  }
};

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  std::istringstream rest{std::string(text)};
  for (std::string part; std::getline(rest, part, ',');) {
    // NCCL takes a port behind the name.
    if (!part.empty()) parts.push_back(part.substr(0, part.find(':')));
  }
  return parts;
}

/// Of those variables that are set.
std::vector<Selection> selections(const Environment& environment) {
  std::vector<Selection> all;
  if (const auto text = environment("NCCL_SOCKET_IFNAME")) {
    std::string_view rest = *text;
    Selection of_nccl;
    of_nccl.excludes = rest.starts_with('^');
    if (of_nccl.excludes) rest.remove_prefix(1);
    of_nccl.exact = rest.starts_with('=');
    if (of_nccl.exact) rest.remove_prefix(1);
    of_nccl.list = parts_of(rest);
    all.push_back(of_nccl);
  }
  const auto include = environment("OMPI_MCA_btl_tcp_if_include");
  const auto list = include ? include : environment("OMPI_MCA_btl_tcp_if_exclude");
  if (list) all.push_back({.excludes = !include, .exact = true, .list = parts_of(*list)});
  return all;
}

/// Docker, libvirt, Podman, LXC and the plugins of Kubernetes make them.
bool is_bridge(std::string_view interface) {
  constexpr std::array<std::string_view, 8> kBegins{"docker", "virbr", "podman", "lxcbr",
                                                    "lxdbr",  "cni",   "veth",   "flannel"};
  if (std::ranges::any_of(kBegins, [&](auto begin) { return interface.starts_with(begin); })) {
    return true;
  }
  // Docker's own networks: br- and twelve digits. Others, as br-ex, may have the host's address.
  return interface.starts_with("br-") && interface.size() == 15 &&
         interface.find_first_not_of("0123456789abcdef", 3) == std::string_view::npos;
}

}  // namespace

bool carries_ranks(const HostAddress& address, const Environment& environment) {
  const std::vector<Selection> all = selections(environment);
  const auto includes = [&](const Selection& each) {
    return !each.excludes && each.names(address);
  };
  if (std::ranges::any_of(all, includes)) return true;
  const auto leaves_out = [&](const Selection& each) {
    return each.excludes == each.names(address);
  };
  if (!all.empty() && std::ranges::all_of(all, leaves_out)) return false;
  return !is_bridge(address.interface) && !is_in_network(address.address, "169.254.0.0/16");
}

std::vector<HostAddress> host_addresses(const Environment& environment) {
  ifaddrs* list = nullptr;
  ZERO_CHECK(::getifaddrs(&list) == 0, "cannot list the network's interfaces: {}",
             std::generic_category().message(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<HostAddress> addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    const bool runs = (each->ifa_flags & IFF_UP) != 0 && (each->ifa_flags & IFF_LOOPBACK) == 0;
    if (!runs || each->ifa_addr == nullptr) continue;
    const HostAddress address{each->ifa_name, address_text(*each->ifa_addr)};
    if (!address.address.empty() && carries_ranks(address, environment)) {
      addresses.push_back(address);
    }
  }
  return addresses;
}

}  // namespace zero
