// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#include "launch/rendezvous/store/endpoint.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/asio/ssl/error.hpp>
#include <cstdint>

#include "base/checked_math.h"
#include "base/error.h"
#include "base/host.h"
#include "launch/process/open_files.h"

namespace zero {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Only an address of this host can be bound.
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

bool meets_on_loopback(const std::string& host, Spread spread) {
  // Some launchers call rank 0's host "localhost" on that host and by its name on others.
  return spread == Spread::one_host || (is_loopback(host) && spread != Spread::several_hosts);
}

std::optional<std::string> why_unknown(const std::string& host) {
  asio::io_context io;
  boost::system::error_code error;
  tcp::resolver(io).resolve(host, "", error);
  if (!error) return std::nullopt;
  return fmt::format(
      "\"{}\", where rank 0 is said to be, has no address here ({}): correct MASTER_ADDR, or give "
      "it an IP address of rank 0's host (under srun without MASTER_ADDR the first host of "
      "SLURM_NODELIST counts)",
      host, error.message());
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

std::string unix_socket_name(int port) {
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

void watch_peer(int descriptor, std::chrono::milliseconds vanished) {
  constexpr int kSecondsBetween = 1;
  // A message that waits for a stopped process. The kernel drops the connection of one for which
  // the peer has no room, even though the peer's kernel answers (TCP_USER_TIMEOUT).
  constexpr int kRoom = 1 << 20;
  const int unanswered = narrow<int>(vanished.count());
  const int idle_seconds = std::max(1, unanswered * 3 / 8000);
  // The store works without these options, which some systems lack.
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(descriptor, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle_seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kSecondsBetween);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, unanswered);  // counts in place of a number of probes
  set(SOL_SOCKET, SO_RCVBUF, kRoom);  // less, where the system allows less (net.core.rmem_max)
}

PeerLoss peer_loss_of(const boost::system::error_code& error) {
  // A FIN of the peer's system came first; a reset behind one is a broken pipe.
  const bool has_ended = error == asio::error::eof || error == asio::error::broken_pipe ||
                         error == asio::ssl::error::stream_truncated;
  if (has_ended) return PeerLoss::ended;
  // Bytes that were changed on their way are no end of a process either.
  const bool is_cut = error == asio::error::connection_reset ||
                      error == asio::error::connection_aborted ||
                      error.category() == asio::error::get_ssl_category();
  // A connection whose peer answers no more ends with what ICMP said meanwhile, if it said
  // anything: a firewall's "connection refused" is no word of the peer's system.
  return is_cut ? PeerLoss::reset : PeerLoss::unreachable;
}

void allow_connections(int ranks) {
  // Its first connection, the main thread's, the watcher's.
  constexpr std::uint64_t kARank = 3;
  // Files of the program, clients that have proven nothing yet.
  constexpr std::uint64_t kOthers = 256;
  const std::uint64_t needed = kARank * static_cast<std::uint64_t>(ranks) + kOthers;
  const OpenFileLimit files = raise_open_file_limit();
  ZERO_CHECK(
      files.hard >= needed,
      "[rank 0] rendezvous: {} ranks take {} file descriptors of rank 0's process, which may "
      "open at most {}; raise its hard limit (ulimit -Hn), or start the ranks with mpirun",
      ranks, needed, files.hard);
  ZERO_CHECK(
      files.soft >= needed,
      "[rank 0] rendezvous: the limit of open files cannot be raised to {}; raise it before the "
      "start (ulimit -n)",
      files.hard);
}

}  // namespace zero
