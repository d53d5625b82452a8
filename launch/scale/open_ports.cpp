// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/scale/open_ports.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"
#include "files/posix_file.h"

namespace zero {
namespace {

/// A socket that listens at a free port, of IPv6 and IPv4, or of IPv4 where there is no other.
Descriptor listening() {
  Descriptor six(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  const int both = 0;
  if (six.get() >= 0 &&
      ::setsockopt(six.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both) == 0 &&
      ::bind(six.get(), reinterpret_cast<const sockaddr*>(&any6), sizeof any6) == 0 &&
      ::listen(six.get(), SOMAXCONN) == 0) {
    return six;
  }
  Descriptor four(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  ZERO_CHECK(four.get() >= 0 &&
                 ::bind(four.get(), reinterpret_cast<const sockaddr*>(&any4), sizeof any4) == 0 &&
                 ::listen(four.get(), SOMAXCONN) == 0,
             "cannot listen at a port: {}", files::reason_of(errno));
  return four;
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  ZERO_CHECK(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) == 0,
             "cannot read a socket's port: {}", files::reason_of(errno));
  // Both kinds have it at the same place.
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

/// Waits until the socket is ready for `events`; the error of the time that is over if it is not.
int wait_for(int socket, short events, std::chrono::milliseconds patience) {
  pollfd ready{socket, events, 0};
  const auto end = std::chrono::steady_clock::now() + patience;
  int count = 0;
  while ((count = ::poll(&ready, 1, static_cast<int>(patience.count()))) < 0 && errno == EINTR) {
    if (std::chrono::steady_clock::now() >= end) break;
  }
  return count > 0 ? 0 : ETIMEDOUT;
}

/// Connects without blocking for longer; the error, or 0.
int connect_to(int socket, const sockaddr* address, socklen_t bytes,
               std::chrono::milliseconds patience) {
  ::fcntl(socket, F_SETFL, O_NONBLOCK);
  if (::connect(socket, address, bytes) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (const int late = wait_for(socket, POLLOUT, patience); late != 0) return late;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

PortAnswer::PortAnswer(std::string text)
    : text_(std::move(text)),
      socket_(listening()),
      port_(port_of(socket_.get())),
      thread_([this] { answer(); }) {}

PortAnswer::~PortAnswer() {
  ::shutdown(socket_.get(), SHUT_RDWR);  // accept() then fails
  thread_.join();
}

void PortAnswer::answer() {
  for (;;) {
    const Descriptor peer(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    static_cast<void>(::send(peer.get(), text_.data(), text_.size(), MSG_NOSIGNAL));
  }
}

std::string why_no_answer(const HostAddress& address, int port, const std::string& text,
                          std::chrono::milliseconds patience) {
  sockaddr_in four{};
  sockaddr_in6 six{};
  four.sin_family = AF_INET;
  six.sin6_family = AF_INET6;
  four.sin_port = six.sin6_port = htons(static_cast<std::uint16_t>(port));
  const bool is_four = ::inet_pton(AF_INET, address.address.c_str(), &four.sin_addr) == 1;
  if (!is_four) ::inet_pton(AF_INET6, address.address.c_str(), &six.sin6_addr);
  const Descriptor socket(::socket(is_four ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return files::reason_of(errno);
  const int failed = is_four ? connect_to(socket.get(), reinterpret_cast<const sockaddr*>(&four),
                                          sizeof four, patience)
                             : connect_to(socket.get(), reinterpret_cast<const sockaddr*>(&six),
                                          sizeof six, patience);
  if (failed != 0) return files::reason_of(failed);
  std::string answer;
  std::array<char, 256> part{};
  const auto end = std::chrono::steady_clock::now() + patience;
  while (answer.size() <= text.size()) {  // another's service may never end
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(end - std::chrono::steady_clock::now(), std::chrono::steady_clock::duration(0)));
    if (const int late = wait_for(socket.get(), POLLIN, left); late != 0) {
      return files::reason_of(late);
    }
    const ssize_t got = ::recv(socket.get(), part.data(), part.size(), 0);
    if (got <= 0) break;
    answer.append(part.data(), static_cast<std::size_t>(got));
  }
  return answer == text ? "" : "another host answers there";
}

}  // namespace zero
