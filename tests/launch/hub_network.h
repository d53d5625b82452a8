// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"

namespace zero::testing {

/// The network between a hub and other hosts that are threads of this process, which listens at one
/// TCP port: its sockets, as the kernel knows them, behind the backs of those that use them. By
/// plain system calls, since a sanitizer of threads would see accesses to others' descriptors.
class HubNetwork {
 public:
  /// Of the one that listens by now.
  HubNetwork() {
    for (const int socket : all()) {
      if (option_of(socket, SO_DOMAIN) != AF_UNIX && option_of(socket, SO_ACCEPTCONN) == 1) {
        listener_ = socket;
      }
    }
    ZERO_CHECK(listener_ >= 0, "nobody listens on TCP");
  }

  /// Both ends of all connections to the port that are there by now.
  std::set<int> connections() const {
    const int port = port_of(listener_, SYS_getsockname);
    std::set<int> found;
    for (const int socket : all()) {
      if (socket == listener_) continue;
      if (port_of(socket, SYS_getsockname) == port || port_of(socket, SYS_getpeername) == port) {
        found.insert(socket);
      }
    }
    return found;
  }

  /// From here on these connections carry nothing, and no other begins: a cable that was pulled.
  void cut(const std::set<int>& sockets) const {
    sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    const sock_fprog program{.len = 1, .filter = &nothing};
    const auto block = [&](int socket) {
      return ::syscall(SYS_setsockopt, socket, SOL_SOCKET, SO_ATTACH_FILTER, &program,
                       sizeof program);
    };
    ZERO_CHECK(block(listener_) == 0, "the system attaches no filter to a socket");
    for (const int socket : sockets) block(socket);
  }

  /// New connections come again.
  void restore() const {
    const int unused = 0;
    ::syscall(SYS_setsockopt, listener_, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused);
  }

  /// Resets these connections, as firewalls do with those that they know no more.
  void reset(const std::set<int>& sockets) const {
    const int port = port_of(listener_, SYS_getsockname);
    const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
    for (const int socket : sockets) {
      if (port_of(socket, SYS_getpeername) != port) continue;  // one of two ends is enough
      ::syscall(SYS_connect, socket, &nowhere, sizeof nowhere);
    }
  }

  /// An address of the hub in IPv4 is gone: its connections are reset, and nobody comes by it.
  void remove(in_addr_t address) const {
    constexpr __u32 kDestination = static_cast<__u32>(SKF_NET_OFF) + 16;  // of an IPv4 packet
    std::array<sock_filter, 4> others{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kDestination),
                                       BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, address, 0, 1),
                                       BPF_STMT(BPF_RET | BPF_K, 0),
                                       BPF_STMT(BPF_RET | BPF_K, ~__u32{0})}};
    const sock_fprog program{.len = static_cast<unsigned short>(others.size()),
                             .filter = others.data()};
    const long attached = ::syscall(SYS_setsockopt, listener_, SOL_SOCKET, SO_ATTACH_FILTER,
                                    &program, sizeof program);
    ZERO_CHECK(attached == 0, "the system attaches no filter to a socket");
    std::set<int> there = connections();
    std::erase_if(there, [address](int socket) {
      sockaddr_in at{};
      socklen_t size = sizeof at;
      ::syscall(SYS_getpeername, socket, &at, &size);
      return at.sin_family != AF_INET || ntohl(at.sin_addr.s_addr) != address;
    });
    reset(there);
  }

  /// These connections, of which the hub has ends, are reset as the hub ends: as if it had left
  /// something unread.
  void reset_at_end(const std::set<int>& sockets) const {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    const int port = port_of(listener_, SYS_getsockname);
    for (const int socket : sockets) {
      if (port_of(socket, SYS_getsockname) != port) continue;
      ::syscall(SYS_setsockopt, socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
  }

  /// The open descriptors of this process.
  static std::size_t descriptors() { return all().size(); }

 private:
  static constexpr int kMostDescriptors = 4096;

  static std::vector<int> all() {
    std::vector<int> open;
    for (int i = 0; i < kMostDescriptors; ++i) {
      if (::syscall(SYS_fcntl, i, F_GETFD) >= 0) open.push_back(i);
    }
    return open;
  }

  static int option_of(int socket, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    const long failed = ::syscall(SYS_getsockopt, socket, SOL_SOCKET, name, &value, &size);
    return failed == 0 ? value : -1;
  }

  /// Of its own address, or its peer's; -1: it has none.
  static int port_of(int socket, long call) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::syscall(call, socket, &address, &size) != 0) return -1;
    if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return -1;
    in_port_t port = 0;  // at the same place in both
    std::memcpy(&port, reinterpret_cast<const char*>(&address) + offsetof(sockaddr_in, sin_port),
                sizeof port);
    return ntohs(port);
  }

  int listener_ = -1;
};

}  // namespace zero::testing
