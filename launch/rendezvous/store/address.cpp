// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/address.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio.hpp>

#include "base/error.h"
#include "launch/process.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Only an address of this host can be bound to.
bool is_own(asio::io_context& io, const asio::ip::address& address) {
  tcp::socket socket(io);
  boost::system::error_code error;
  const tcp::endpoint any_port(address, 0);
  socket.open(any_port.protocol(), error);
  if (!error) socket.bind(any_port, error);
  return !error;
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::optional<std::string> why_elsewhere(const std::string& host) {
  if (is_loopback(host) || host == host_name()) return std::nullopt;
  asio::io_context io;
  boost::system::error_code error;
  const auto places = tcp::resolver(io).resolve(host, "", error);
  if (error) return fmt::format("{} has no address here ({})", host, error.message());
  for (const auto& place : places) {
    if (is_own(io, place.endpoint().address())) return std::nullopt;
  }
  return fmt::format("{} is no address of this host", host);
}

std::string local_name(int port) {
  return fmt::format("{}zero-store-{}-{}", '\0', ::geteuid(), port);
}

bool PeerProcess::is_of_this_user() const { return user == ::geteuid(); }

std::string PeerProcess::text() const {
  return fmt::format("process {} of user id {}", process, user);
}

PeerProcess peer_process(int descriptor) {
  struct ucred found {};
  socklen_t length = sizeof found;
  ZERO_CHECK(::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &found, &length) == 0 &&
                 length == sizeof found,
             "the system does not say whose process is at the other end of a Unix socket");
  return {.user = found.uid, .process = found.pid};
}

}  // namespace zero
