// SPDX-FileCopyrightText: The ZeRO engine authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "launch/rendezvous/store/endpoint.h"
#include "launch/rendezvous/store/tls.h"

namespace zero {

/// Reports connections that were dropped or not accepted, at most one line per kBetween and one at
/// the end, so that strangers cannot fill a log. Used by one thread at a time.
class ConnectionLog {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBetween{10};

  explicit ConnectionLog(std::function<void(const std::string&)> report)
      : report_(std::move(report)) {}

  /// Reports that a connection of `peer` was dropped.
  void dropped(const std::string& peer, const std::string& why);
  /// Reports that connections cannot be accepted at the moment.
  void cannot_accept(const std::string& why);
  /// Reports the number of those that no line has counted, if any.
  void end();

 private:
  void tell(const std::string& text);

  std::function<void(const std::string&)> report_;
  std::uint64_t untold_ = 0;
  Clock::time_point next_{};
};

/// The listening sockets of a store: a Unix socket, which admits only this user's processes on this
/// host, and TCP for jobs with a secret. Accepts every connection; if the system has no resources
/// for one, waits a moment and tries again.
class StoreAcceptor {
 public:
  using Accept = std::function<void(StoreSocket socket, const std::string& peer)>;

  /// `vanished`: as in StoreOptions.
  StoreAcceptor(boost::asio::io_context& io, ConnectionLog& log, std::chrono::milliseconds vanished,
                Accept on_accept)
      : io_(io), log_(log), vanished_(vanished), on_accept_(std::move(on_accept)) {}

  /// `port` 0: any free port. Throws zero::Error if the store cannot listen.
  void open_local(int port);
  /// The same on TCP: on the loopback if ranks meet there (meets_on_loopback), on all addresses
  /// otherwise. Also accepts this user's processes on this host that have no secret,
  /// to refuse them with a message.
  void open_network(const std::string& host, int port, Spread spread);
  int port() const { return port_; }

 private:
  template <typename Acceptor>
  void accept(Acceptor& acceptor, boost::asio::steady_timer& rest);
  void accepted(boost::asio::ip::tcp::socket socket);
  void accepted(boost::asio::local::stream_protocol::socket socket);
  void listen_on_tcp(const std::string& host, int port, Spread spread);
  boost::system::error_code listen_locally(int port);

  boost::asio::io_context& io_;
  ConnectionLog& log_;
  std::chrono::milliseconds vanished_;
  Accept on_accept_;
  boost::asio::ip::tcp::acceptor network_{io_};
  boost::asio::local::stream_protocol::acceptor local_{io_};
  boost::asio::steady_timer network_rest_{io_};
  boost::asio::steady_timer local_rest_{io_};
  int port_ = 0;
};

}  // namespace zero
